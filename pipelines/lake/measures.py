"""What is derived from the canonical columns, as SQL: a job's GPUs, hours, claims and zone, a machine's busy hours.

Each definition stands here once. The lake's connections and what is asked of them are not here.
Called by `pipelines.lake.views` and `pipelines.statistics`.

Notes
-----
CPU and GPU count as means over a run, memory as mean and as the largest peak over instances; all per instance. What
GPU memory a task claims is its GPUs times their memory, where the device's type tells it. Parameter servers are left
out of claims: traces measure them with their workers' sensors.
"""

from collections.abc import Mapping
from typing import Final

from features.vocabulary import GPU_MEM_GIB_OF_TYPE

ROLE_PARAMETER_SERVER: Final = "ps"

GPUS: Final = "instances * req_gpus"
GPU_HOURS: Final = "instances * req_gpus * run_s / 3600"
INSTANCE_HOURS: Final = "instances * run_s / 3600"
"""They count run time, and are null where any part is."""

ZONE: Final = "local_zone(trace)"
"""The time zone in which a row's trace is read: that of its manifest, by the macro of `zone_macro`."""
EXACT: Final = "DECIMAL(38, 12)"
"""What is summed: rules at ingest keep each product of a request, instances and hours, and sums of them, within it."""

_DEVICE_GIB: Final = " ".join(f"WHEN '{name}' THEN {gib}" for name, gib in GPU_MEM_GIB_OF_TYPE.items())

ASKED: Final = "asked for"
OF_DEVICES: Final = "GPUs asked for x device memory"
"""What a request is: a number that was asked for; or, of GPU memory, which nobody asks for, that of the GPUs."""

CLAIMS: Final = (
    ("cpu_cores", "mean", "req_cpu_cores", "used_cpu_cores"),
    ("gpus", "mean", "req_gpus", "used_gpus"),
    ("mem_gib", "mean", "req_mem_gib", "mem_avg_gib"),
    ("mem_gib", "peak", "req_mem_gib", "mem_max_gib"),
    ("gpu_mem_gib", "mean", f"req_gpus * CASE gpu_type {_DEVICE_GIB} END", "gpu_mem_avg_gib"),
    ("gpu_mem_gib", "peak", f"req_gpus * CASE gpu_type {_DEVICE_GIB} END", "gpu_mem_max_gib"),
)
"""What is compared: the resource, which use of it, the request and the use."""

_CELLS: Final = ", ".join(
    f"{{'resource': '{resource}', 'use': '{use}', 'basis': '{OF_DEVICES if resource == 'gpu_mem_gib' else ASKED}', "
    f"'request': CAST({request} AS DOUBLE), 'used': {used}}}"
    for resource, use, request, used in CLAIMS
)
CLAIM_CELLS: Final = f"unnest([{_CELLS}], recursive := true)"
"""One row per claim: `resource`, `use`, `basis`, `request`, `used`."""
CLAIMS_MEASURED: Final = f"role <> '{ROLE_PARAMETER_SERVER}'"
IS_CLAIM: Final = "request > 0 AND used IS NOT NULL"
SLACK: Final = "greatest(request - used, 0)"

MACHINE_TYPE: Final = (
    """coalesce(gpu_type, gpus || ' GPUs' || coalesce(' of ' || printf('%g', gpu_mem_gib) || ' GiB', ''), 'unknown')"""
)
"""The GPU's name, else the machine's GPUs and their memory, `unknown` for machines that no list has."""
HOUR_SINCE_1970: Final = "epoch_us(ts) // 3600000000"
_FRACTION: Final = "DECIMAL(18, 9)"
MEAN_FRACTIONS: Final = ", ".join(
    f"avg(CAST({name}_frac AS {_FRACTION})) AS {name}_frac" for name in ("cpu", "mem", "gpu")
)
SAMPLES: Final = ", ".join(f"count({name}_frac) AS {name}_samples" for name in ("cpu", "mem", "gpu"))
"""What a machine's hour holds: its mean busy fractions, the same in every order of rows, and how many samples."""


def zone_macro(zones: Mapping[str, str]) -> str:
    """Return the statement that makes `local_zone` of the zones of traces.

    >>> zone_macro({"ours": "Asia/Shanghai"})
    "CREATE MACRO local_zone(t) AS CASE t WHEN 'ours' THEN 'Asia/Shanghai' ELSE 'UTC' END"
    """
    cases = "".join(f"WHEN '{trace}' THEN '{zone}' " for trace, zone in zones.items())
    return "CREATE MACRO local_zone(t) AS " + (f"CASE t {cases}ELSE 'UTC' END" if cases else "'UTC'")


def total(value: str, where: str | None = None) -> str:
    """Return the SQL of a sum that is the same in every order of rows: of decimals, cut to nine digits, as a float.

    >>> total("run_s")
    'CAST(round(sum(CAST(run_s AS DECIMAL(38, 12))), 9) AS DOUBLE)'
    """
    only = f" FILTER (WHERE {where})" if where else ""
    return f"CAST(round(sum(CAST({value} AS {EXACT})){only}, 9) AS DOUBLE)"
