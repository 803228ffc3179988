"""The SQL of every quantity derived from canonical columns: hours, claims and slack, machine types, and exact sums.

Use and request are per instance. CPU and GPU use is the mean over a run; memory use has two measures, the mean and the
largest peak over instances. The GPU memory that a job requests is its number of GPUs times the memory of their type. A
claim is a request that is compared with use. Parameter servers have none, because the traces report the measurements of
their workers for them.
"""

from typing import Final

from features.vocabulary import GPU_MEM_GIB_OF_TYPE

__all__ = [
    "CLAIMS_MEASURED",
    "CLAIM_CELLS",
    "ENERGY_KWH",
    "EXACT",
    "GPUS",
    "GPU_HOURS",
    "HOUR_SINCE_1970",
    "INSTANCE_HOURS",
    "IS_CLAIM",
    "MACHINE_TYPE",
    "MEAN_FRACTIONS",
    "MEAN_POWER_W",
    "SAMPLES",
    "SLACK",
    "total",
]

ROLE_PARAMETER_SERVER: Final = "ps"

GPUS: Final = "instances * req_gpus"
GPU_HOURS: Final = "instances * req_gpus * run_s / 3600"
INSTANCE_HOURS: Final = "instances * run_s / 3600"
"""Hours of run time over all instances; null if any factor is null."""

EXACT: Final = "DECIMAL(38, 12)"
"""SQL type for exact sums. Ingest rules bound requests, instances and hours, so that sums of their products fit."""

_DEVICE_GIB: Final = " ".join(f"WHEN '{name}' THEN {gib}" for name, gib in GPU_MEM_GIB_OF_TYPE.items())

REQUESTED: Final = "asked for"
OF_DEVICES: Final = "GPUs asked for x device memory"
"""Origins of a request: a number in the trace or, for GPU memory (not requested), the memory of requested GPUs."""

CLAIMS: Final = (
    ("cpu_cores", "mean", "req_cpu_cores", "used_cpu_cores"),
    ("gpus", "mean", "req_gpus", "used_gpus"),
    ("mem_gib", "mean", "req_mem_gib", "mem_avg_gib"),
    ("mem_gib", "peak", "req_mem_gib", "mem_max_gib"),
    ("gpu_mem_gib", "mean", f"req_gpus * CASE gpu_type {_DEVICE_GIB} END", "gpu_mem_avg_gib"),
    ("gpu_mem_gib", "peak", f"req_gpus * CASE gpu_type {_DEVICE_GIB} END", "gpu_mem_max_gib"),
)
"""Comparisons of request and use: resource, kind of use, SQL of the request, SQL of the use."""

_CELLS: Final = ", ".join(
    f"{{'resource': '{resource}', 'use': '{use}', 'basis': '{OF_DEVICES if resource == 'gpu_mem_gib' else REQUESTED}', "
    f"'request': CAST({request} AS DOUBLE), 'used': {used}}}"
    for resource, use, request, used in CLAIMS
)
CLAIM_CELLS: Final = f"unnest([{_CELLS}], recursive := true)"
"""SQL that gives one row per claim, with columns `resource`, `use`, `basis`, `request`, `used`."""
CLAIMS_MEASURED: Final = f"role <> '{ROLE_PARAMETER_SERVER}'"
IS_CLAIM: Final = "request > 0 AND used IS NOT NULL"
SLACK: Final = "greatest(request - used, 0)"

MACHINE_TYPE: Final = (
    """coalesce(gpu_type, gpus || ' GPUs' || coalesce(' of ' || printf('%g', gpu_mem_gib) || ' GiB', ''), 'unknown')"""
)
"""SQL of the machine type: GPU type, else number and memory of GPUs; `unknown` for machines that are not listed."""
HOUR_SINCE_1970: Final = "epoch_us(ts) // 3600000000"
_FRACTION: Final = "DECIMAL(18, 9)"
MEAN_FRACTIONS: Final = ", ".join(
    f"avg(CAST({name}_frac AS {_FRACTION})) AS {name}_frac" for name in ("cpu", "mem", "gpu")
)
SAMPLES: Final = ", ".join(f"count({name}_frac) AS {name}_samples" for name in ("cpu", "mem", "gpu"))
"""SQL of the sample counts of CPU, memory and GPUs; `MEAN_FRACTIONS` is the SQL of their mean busy fractions, which
uses decimals so that the order of rows does not change the result."""


def total(value: str, where: str | None = None) -> str:
    """Return the SQL of a sum that does not depend on row order: it adds decimals, then rounds to nine digits.

    `where` restricts the rows that are added. The result is a DOUBLE.
    """
    only = f" FILTER (WHERE {where})" if where else ""
    return f"CAST(round(sum(CAST({value} AS {EXACT})){only}, 9) AS DOUBLE)"


ENERGY_KWH: Final = f"{total('energy_j')} / 3.6e6"
MEAN_POWER_W: Final = f"{total('power_w * coverage_frac')} / nullif({total('coverage_frac', 'power_w IS NOT NULL')}, 0)"
"""SQL of the energy of rows of `environment` in kWh, and of their mean power, weighted by the time sampled."""
