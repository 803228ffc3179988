"""The columns that a mapping may fill, what kind of value each is, and the units and conversions of every kind.

How a value is read from its text, as SQL, stands in `conversions.py`; checking a mapping in `mapping.py`.
Called by both, and by the page that documents them.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

from pipelines.lake.generic import conversions
from pipelines.lake.generic.conversions import Conversion

_KIB: Final = 1024


@dataclass(frozen=True, slots=True, kw_only=True)
class Kind:
    """What values of a column are: the units they may be given in (by factor), and their named conversions."""

    units: Mapping[str, float] = field(default_factory=dict)
    named: Mapping[str, Conversion] = field(default_factory=dict)
    plain: Conversion = conversions.TEXT


TEXT: Final = Kind(named={"slurm_gpu_type": conversions.SLURM_GPU_TYPE})
STATUS: Final = Kind(plain=conversions.STATUS, named={"slurm_state": conversions.SLURM_STATE})
TASK_TYPE: Final = Kind(plain=conversions.TASK_TYPE)
TIME: Final = Kind()
COUNT: Final = Kind(plain=conversions.COUNT)
MACHINE_GPUS: Final = Kind(plain=conversions.COUNT, named={"slurm_gpus": conversions.SLURM_GPU_COUNT})
DURATION: Final = Kind(
    plain=conversions.NUMBER,
    units={"s": 1, "ms": 1e-3, "us": 1e-6, "min": 60, "h": 3600, "days": 86400},
    named={"slurm_time": conversions.SLURM_TIME, "slurm_minutes": conversions.SLURM_TIME_LIMIT},
)
CORES: Final = Kind(
    plain=conversions.NUMBER,
    units={"cores": 1, "millicores": 1e-3, "percent": 1e-2},
    # CPU time over run time is cores: `per = "run_s"`.
    named={"slurm_cpus": conversions.SLURM_CPUS, "slurm_time": conversions.SLURM_TIME},
)
GPUS: Final = Kind(
    plain=conversions.NUMBER,
    units={"gpus": 1, "milligpus": 1e-3, "percent": 1e-2},
    named={"slurm_gpus": conversions.SLURM_GPUS},
)
MEMORY: Final = Kind(
    plain=conversions.NUMBER,
    units={
        "bytes": _KIB**-3,
        "KiB": _KIB**-2,
        "MiB": _KIB**-1,
        "GiB": 1,
        "TiB": _KIB,
        **{name: power / _KIB**3 for name, power in {"KB": 1e3, "MB": 1e6, "GB": 1e9, "TB": 1e12}.items()},
    },
    named={"slurm_memory": conversions.SLURM_MEMORY},
)
RATE: Final = Kind(
    plain=conversions.NUMBER,
    units={"bytes_per_s": 1, "KiB_per_s": _KIB, "MiB_per_s": _KIB**2, "MB_per_s": 1e6, "Mbit_per_s": 1.25e5},
)

JOB_COLUMNS: Final[dict[str, Kind]] = {
    **dict.fromkeys(("job_id", "role", "user", "vc", "group", "workload", "gpu_type"), TEXT),
    "task_type": TASK_TYPE,
    **dict.fromkeys(("submit_ts", "start_ts", "end_ts"), TIME),
    **dict.fromkeys(("queue_s", "run_s", "time_limit_s"), DURATION),
    "status": STATUS,
    **dict.fromkeys(("instances", "nodes", "attempts", "priority"), COUNT),
    "req_cpu_cores": CORES,
    "req_mem_gib": MEMORY,
    "req_gpus": GPUS,
}
USAGE_COLUMNS: Final[dict[str, Kind]] = {
    "used_cpu_cores": CORES,
    "used_gpus": GPUS,
    **dict.fromkeys(("mem_avg_gib", "mem_max_gib", "gpu_mem_avg_gib", "gpu_mem_max_gib"), MEMORY),
    **dict.fromkeys(("net_read_bytes_per_s", "net_write_bytes_per_s"), RATE),
    "instances_measured": COUNT,
}
MACHINE_COLUMNS: Final[dict[str, Kind]] = {
    **dict.fromkeys(("machine", "gpu_type"), TEXT),
    "cpu_cores": CORES,
    "mem_gib": MEMORY,
    "gpus": MACHINE_GPUS,
    "gpu_mem_gib": MEMORY,
}
