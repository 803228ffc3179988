"""The paper's five features, all measured while the job ran: for comparison, never served.

They read the `usage` columns joined onto the jobs; features known at submission are elsewhere.
Called through `features.sets`; `with_usage` by `pipelines.models.examples`.
"""

from typing import Final

import polars as pl

from features.columns.feature import Feature
from features.vocabulary import GPU_MEM_GIB_OF_TYPE

_KEYS: Final = ("trace", "cluster", "job_id", "role")


def with_usage(jobs: pl.DataFrame, usage: pl.DataFrame) -> pl.DataFrame:
    """Return `jobs`, same rows and order, with the columns of `usage` added (null where not measured)."""
    return jobs.join(usage, on=_KEYS, how="left", validate="m:1", maintain_order="left")


def cpu_cores() -> pl.Expr:
    """Return the mean of used CPU cores per instance."""
    return pl.col("used_cpu_cores").cast(pl.Float64)


def gpu_frac() -> pl.Expr:
    """Return the mean GPU use per instance: 1 is one device kept busy."""
    return pl.col("used_gpus").cast(pl.Float64)


def mem_gib() -> pl.Expr:
    """Return the mean memory per instance."""
    return pl.col("mem_avg_gib").cast(pl.Float64)


def net_bytes_per_s() -> pl.Expr:
    """Return the mean network traffic per instance, read and written together."""
    return pl.col("net_read_bytes_per_s").cast(pl.Float64) + pl.col("net_write_bytes_per_s").cast(pl.Float64)


def gpu_mem_frac(assumed_gib: float | None = None) -> pl.Expr:
    """Return mean GPU memory over one device's; for unknown types over `assumed_gib` (null without)."""
    device_gib = (
        pl.col("gpu_type")
        .cast(pl.String)
        .replace_strict(GPU_MEM_GIB_OF_TYPE, default=assumed_gib, return_dtype=pl.Float64)
    )
    return pl.col("gpu_mem_avg_gib").cast(pl.Float64) / device_gib


_DEFINED: Final = (
    Feature(
        name="measured_cpu_cores",
        unit="cores",
        doc="mean CPU cores used, per instance",
        source=cpu_cores,
        needs=("used_cpu_cores",),
    ),
    Feature(
        name="measured_gpu_frac",
        unit="GPUs",
        doc="mean GPU use, per instance",
        source=gpu_frac,
        needs=("used_gpus",),
    ),
    Feature(
        name="measured_mem_gib",
        unit="GiB",
        doc="mean memory used, per instance",
        source=mem_gib,
        needs=("mem_avg_gib",),
    ),
    Feature(
        name="measured_net_bytes_per_s",
        unit="bytes/s",
        doc="mean network traffic, read and write, per instance",
        source=net_bytes_per_s,
        needs=("net_read_bytes_per_s", "net_write_bytes_per_s"),
    ),
    Feature(
        name="measured_gpu_mem_frac",
        unit="fraction",
        doc="mean GPU memory used over one device's memory, per instance",
        source=gpu_mem_frac,
        needs=("gpu_mem_avg_gib", "gpu_type"),
    ),
)

MEASURED: Final[dict[str, Feature]] = {feature.name: feature for feature in _DEFINED}
