"""The published format of PAI: its seven tables with their columns in order, and the mark of a synthetic trace."""

from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt
    import polars as pl
    import pyarrow as pa

__all__ = ["COLUMNS", "SYNTHETIC_MARK", "SYNTHETIC_NAME"]
SYNTHETIC_MARK: Final = ".taut-synthetic"
"""Name of the file that marks the tables in its folder as synthetic."""
SYNTHETIC_NAME: Final = "pai-synth"
"""Default name of a synthetic trace in the lake."""

COLUMNS: Final[dict[str, tuple[str, ...]]] = {
    "pai_job_table": ("job_name", "inst_id", "user", "status", "start_time", "end_time"),
    "pai_task_table": (
        "job_name", "task_name", "inst_num", "status", "start_time", "end_time",
        "plan_cpu", "plan_mem", "plan_gpu", "gpu_type",
    ),
    "pai_instance_table": (
        "job_name", "task_name", "inst_name", "worker_name", "inst_id", "status", "start_time", "end_time", "machine",
    ),
    "pai_sensor_table": (
        "job_name", "task_name", "worker_name", "inst_id", "machine", "gpu_name", "cpu_usage", "gpu_wrk_util",
        "avg_mem", "max_mem", "avg_gpu_wrk_mem", "max_gpu_wrk_mem", "read", "write", "read_count", "write_count",
    ),
    "pai_group_tag_table": ("inst_id", "user", "gpu_type_spec", "group", "workload"),
    "pai_machine_spec": ("machine", "gpu_type", "cap_cpu", "cap_mem", "cap_gpu"),
    "pai_machine_metric": (
        "worker_name", "machine", "start_time", "end_time", "machine_cpu_iowait", "machine_cpu_kernel",
        "machine_cpu_usr", "machine_gpu", "machine_load_1", "machine_net_receive", "machine_num_worker", "machine_cpu",
    ),
}  # fmt: skip
"""Published tables and their columns, in order; the files have no header line."""


def published_frame(table: str, **columns: "pa.Array | npt.NDArray[np.generic]") -> "pl.DataFrame":
    """Build a frame with columns in the published order; NaN and "" become null."""
    # Imported here because ingest needs only the constants of this module.
    import numpy as np
    import polars as pl
    import pyarrow as pa

    series = []
    for name in COLUMNS[table]:
        values = columns[name]
        if isinstance(values, pa.Array):
            made = pl.Series(name, values)
        elif values.dtype.kind == "U":
            kinds, codes = np.unique(values, return_inverse=True)
            made = pl.Series(name, [k or None for k in kinds.tolist()], dtype=pl.String).gather(pl.Series(codes))
        else:
            made = pl.Series(name, values)
            made = made.fill_nan(None) if made.dtype == pl.Float64 else made
        series.append(made)
    return pl.DataFrame(series)
