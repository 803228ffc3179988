"""The kind of every column that a mapping may name: its units, its default conversion and its named conversions."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

from pipelines.lake.generic.conversions import (
    AS_COUNT,
    AS_NUMBER,
    AS_STATUS,
    AS_TASK_TYPE,
    AS_TEXT,
    DECIMAL_COMMA,
    KUBERNETES_BYTES,
    KUBERNETES_QUANTITY,
    NAME_PATTERN,
    SLURM_CPUS,
    SLURM_GPU_COUNT,
    SLURM_GPU_TYPE,
    SLURM_GPUS,
    SLURM_MEMORY,
    SLURM_STATE,
    SLURM_TIME,
    SLURM_TIME_LIMIT,
    Conversion,
)

PERCENT: Final = "percent"
"""The unit in whose texts a percent sign may follow the number."""

REQUEST_OF: Final = {"used_cpu_cores": "req_cpu_cores", "used_gpus": "req_gpus"}
"""By column of use: the request that its percentages refer to."""

COMMA: Final = {"decimal_comma": DECIMAL_COMMA}
_KIB: Final = 1024


@dataclass(frozen=True, slots=True, kw_only=True)
class Kind:
    """The kind of a column's values: accepted units with their factors, default conversion, and named conversions."""

    units: Mapping[str, float] = field(default_factory=dict)
    named: Mapping[str, Conversion] = field(default_factory=dict)
    plain: Conversion = AS_TEXT


TEXT: Final = Kind(named={"slurm_gpu_type": SLURM_GPU_TYPE, "name_pattern": NAME_PATTERN})
STATUS: Final = Kind(plain=AS_STATUS, named={"slurm_state": SLURM_STATE})
TASK_TYPE: Final = Kind(plain=AS_TASK_TYPE)
TIME: Final = Kind()
COUNT: Final = Kind(plain=AS_COUNT)
MACHINE_GPUS: Final = Kind(plain=AS_COUNT, named={"slurm_gpus": SLURM_GPU_COUNT})
DURATION: Final = Kind(
    plain=AS_NUMBER,
    units={"s": 1, "ms": 1e-3, "us": 1e-6, "min": 60, "h": 3600, "days": 86400},
    named={"slurm_time": SLURM_TIME, "slurm_minutes": SLURM_TIME_LIMIT, **COMMA},
)
CORES: Final = Kind(
    plain=AS_NUMBER,
    units={"cores": 1, "millicores": 1e-3, PERCENT: 1e-2},
    # With `per = "run_s"`, CPU time divided by run time gives cores.
    named={
        "slurm_cpus": SLURM_CPUS,
        "slurm_time": SLURM_TIME,
        "kubernetes_quantity": KUBERNETES_QUANTITY,
        **COMMA,
    },
)
GPUS: Final = Kind(
    plain=AS_NUMBER,
    units={"gpus": 1, "milligpus": 1e-3, PERCENT: 1e-2},
    named={"slurm_gpus": SLURM_GPUS, "kubernetes_quantity": KUBERNETES_QUANTITY, **COMMA},
)
MEMORY: Final = Kind(
    plain=AS_NUMBER,
    units={
        "bytes": _KIB**-3,
        "KiB": _KIB**-2,
        "MiB": _KIB**-1,
        "GiB": 1,
        "TiB": _KIB,
        **{name: power / _KIB**3 for name, power in {"KB": 1e3, "MB": 1e6, "GB": 1e9, "TB": 1e12}.items()},
    },
    named={"slurm_memory": SLURM_MEMORY, "kubernetes_quantity": KUBERNETES_BYTES, **COMMA},
)
RATE: Final = Kind(
    plain=AS_NUMBER,
    units={"bytes_per_s": 1, "KiB_per_s": _KIB, "MiB_per_s": _KIB**2, "MB_per_s": 1e6, "Mbit_per_s": 1.25e5},
    named=COMMA,
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
