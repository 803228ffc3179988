"""A folder of made-up measurements in the form of the published ones: every number is ours."""

import json
from pathlib import Path
from typing import Final

import numpy as np

from pipelines.studies.energy import NODE_TYPES

MHZ: Final = (800, 900, 1000, 1200, 1400)
WORKLOADS: Final = ("FDTD", "LSTM", "ResN50")
"""Names of published workloads, which have fitted models."""


def write_folder(folder: Path) -> Path:
    """Write every file that studies read."""
    for name in ("gpu_frequency", "throughput"):
        (folder / name).mkdir(parents=True, exist_ok=True)
    (folder / "README.md").write_text("made up\n")
    head, at = "frequency(MHz)," + ",".join(map(str, MHZ)), np.array(MHZ, dtype=float)
    for file, values in (("performance", at / at[-1]), ("power", 50.0 + 3e-8 * at**3)):
        rows = [
            f"{name},{','.join(f'{value:.6f}' for value in values ** (0.5 + 0.1 * k))}"
            for k, name in enumerate(WORKLOADS)
        ]
        (folder / f"gpu_frequency/dataset_{file}.csv").write_text("\n".join([head, *rows]) + "\n")
    (folder / "throughput/gavel_throughputs.json").write_text(json.dumps({node: _speeds() for node in NODE_TYPES}))
    return folder


def _speeds() -> dict[str, dict[str, object]]:
    alone = {"('A3C', 1)": 7.0, **{f"('ResNet-18 (batch size 16)', {gpus})": 10.0 * gpus for gpus in (1, 2, 4, 8)}}
    return {job: {"null": speed, "('A3C', 1)": [1.0, 2.0]} for job, speed in alone.items()}
