"""The published machines, and machine metrics averaged over the life of each worker."""

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import polars as pl
import pyarrow as pa

from pipelines.synth.calibration import Calibration
from pipelines.synth.published import published_frame
from pipelines.synth.random_numbers import Floats, Ints, Noise

_LASTING = 0.3
"""Share of the variance of machine load that is between machines; the rest is between workers of a machine."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Park:
    """All machines, sorted by GPU type; `first` and `count` give each type's first index and number of machines."""

    name: pa.Array
    gpu_type: npt.NDArray[np.str_]
    cpu_cores: Ints
    mem_gb: Ints
    gpus: Ints
    first: dict[str, int]
    count: dict[str, int]


def build_park(calibration: Calibration, noise: Noise) -> Park:
    """Build the list of all machines from the published counts."""
    kind, cpu_cores, mem_gb, gpus, count = zip(*sorted(calibration.machines.classes, key=lambda c: c[0]), strict=True)
    gpu_type = np.repeat(np.array(kind), count)
    kinds = sorted(set(kind))
    return Park(
        name=noise.digests("machine", np.arange(len(gpu_type)), 24),
        gpu_type=gpu_type,
        cpu_cores=np.repeat(np.array(cpu_cores), count),
        mem_gb=np.repeat(np.array(mem_gb), count),
        gpus=np.repeat(np.array(gpus), count),
        first={kind: int(np.flatnonzero(gpu_type == kind)[0]) for kind in kinds},
        count={kind: int((gpu_type == kind).sum()) for kind in kinds},
    )


def machine_table(park: Park) -> pl.DataFrame:
    """Return the published table of machines."""
    return published_frame(
        "pai_machine_spec",
        machine=park.name,
        gpu_type=park.gpu_type,
        cap_cpu=park.cpu_cores,
        cap_mem=park.mem_gb,
        cap_gpu=park.gpus,
    )


def metric_table(
    calibration: Calibration, noise: Noise, park: Park, *, worker: Ints, machine: Ints, start_s: Ints, end_s: Floats
) -> pl.DataFrame:
    """Return the table of machine metrics, one row per worker, drawn around the medians of each machine type."""
    law, kind, gpus = calibration.metric, park.gpu_type[machine], park.gpus[machine]

    def around(medians: Mapping[str, float], spread: float, stream: str) -> Floats:
        lasting = noise.normal(f"machine {stream}", machine)
        own = noise.normal(f"metric {stream}", worker)
        kinds = sorted(medians)
        median = np.array([medians[k] for k in kinds])[np.searchsorted(kinds, kind)]
        return np.asarray(median * np.exp(spread * (np.sqrt(_LASTING) * lasting + np.sqrt(1.0 - _LASTING) * own)))

    cpu = np.minimum(around(law.cpu, law.cpu_sd, "cpu"), 98.0)
    iowait = law.iowait * np.exp(law.iowait_sd * noise.normal("iowait", worker))
    kernel = (cpu - iowait) * law.kernel_frac
    gpu = np.minimum(around(law.gpu_util, law.gpu_util_sd, "gpu"), 100.0) * gpus
    receive = law.receive_bytes_per_s * np.exp(law.receive_sd * noise.normal("receive", worker))
    return published_frame(
        "pai_machine_metric",
        worker_name=noise.digests("worker", worker, 60),
        machine=park.name.take(pa.array(machine)),
        start_time=start_s.astype(np.float64),
        end_time=end_s,
        machine_cpu_iowait=np.round(iowait, 6),
        machine_cpu_kernel=np.round(kernel, 6),
        machine_cpu_usr=np.round(cpu - iowait - kernel, 6),
        machine_gpu=np.round(gpu, 6),
        machine_load_1=np.round(cpu / 100.0 * park.cpu_cores[machine], 6),
        machine_net_receive=np.round(receive, 6),
        machine_num_worker=np.round(np.maximum(around(law.workers, law.workers_sd, "workers"), 1.0), 6),
        machine_cpu=np.round(cpu, 6),
    )
