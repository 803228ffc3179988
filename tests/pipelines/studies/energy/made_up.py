"""A folder of made-up measurements in the form of the published ones: every number is ours."""

import json
from pathlib import Path
from typing import Final

import numpy as np

from pipelines.studies.energy.measured import GPU_TYPES, NODE_TYPES

MHZ: Final = (800, 900, 1000, 1200, 1400)
WORKLOADS: Final = {"even": (0.5, 50.0), "bound": (0.9, 40.0), "keen": (0.1, 60.0)}
"""By name: the share of time that does not depend on the frequency, and watts at none."""

APPLICATIONS: Final = {"cifar10": (0.03, 0.0005), "bert": (0.1, 0.01)}
"""By name: seconds of a step, and of a sample."""


def write_folder(folder: Path) -> Path:
    """Write every file that models are made of."""
    for name in ("gpu_frequency", "gpu_power_limit", "throughput"):
        (folder / name).mkdir(parents=True, exist_ok=True)
    (folder / "README.md").write_text("made up\n")
    head = "frequency(MHz)," + ",".join(map(str, MHZ))
    at = np.array(MHZ, dtype=float)
    perf = {name: 1.0 / (a + (1.0 - a) * at[-1] / at) for name, (a, _) in WORKLOADS.items()}
    watts = {name: p0 + 3e-8 * at**3 for name, (_, p0) in WORKLOADS.items()}
    for file, table in (("performance", perf), ("power", watts)):
        rows = [f"{name},{','.join(f'{value:.6f}' for value in values)}" for name, values in table.items()]
        (folder / f"gpu_frequency/dataset_{file}.csv").write_text("\n".join([head, *rows]) + "\n")
    (folder / "throughput/step_time_by_gpu_count.csv").write_text("\n".join(_steps()) + "\n")
    for gpu_type in GPU_TYPES:
        (folder / f"gpu_power_limit/summary_power_{gpu_type}.csv").write_text("\n".join(_limits()) + "\n")
    (folder / "throughput/gavel_throughputs.json").write_text(json.dumps({node: _speeds() for node in NODE_TYPES}))
    return folder


def _steps() -> list[str]:
    rows = ["application,cluster,num_nodes,num_gpus,batch_size_per_gpu,step_time_s,sync_time_s"]
    for name, (start, each) in APPLICATIONS.items():
        for gpus in (1, 2, 3, 4, 6, 8, 12, 16):
            for batch in (4, 16, 64):
                nodes = -(-gpus // 8)
                sync = 0.0001 if gpus == 1 else 0.01 * nodes + 0.001 * gpus
                rows.append(f"{name},dgx-ext,{nodes},{gpus},{batch}.0,{start + each * batch + sync},{sync}")
    return [*rows, "odd,dgx-ext,1,2,1.0,0.1,0.2"]


def _limits() -> list[str]:
    rows = ["dataset,network,batch_size,optimizer,power_limit,time_per_epoch,average_power"]
    return [
        *rows,
        *(f"imagenet,resnet50,256,adam,{limit},{2000 / limit + 5},{0.8 * limit}" for limit in (100, 150, 200)),
    ]


def _speeds() -> dict[str, dict[str, object]]:
    alone = {"('A3C', 1)": 7.0, **{f"('ResNet-18 (batch size 16)', {gpus})": 10.0 * gpus for gpus in (1, 2, 4, 8)}}
    return {job: {"null": speed, "('A3C', 1)": [1.0, 2.0]} for job, speed in alone.items()}
