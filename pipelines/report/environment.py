"""The report's section on GPUs as their exporters measured them: power, temperature, energy and errors.

The report has it only if a trace has rows in `environment`.
"""

from typing import Final

import polars as pl

from pipelines.report.charts.grids import power_hours, power_of_types
from pipelines.report.parts import Note, Part, Section, Table, Traces

_COLUMNS: Final = ("gpus", "gpu_hours", "sampled_h", "energy_kwh", "mean_w", "max_w", "mean_c", "max_c")
_ERRORS: Final = ("xid_hours", "xid_gpus")
FITTED: Final = (
    "Least squares over machine-hours: power of a GPU at busy fraction 0 (idle_w) and 1 (full_w), and the share of the "
    "variance explained (r2); figures for the file of taut simulate --power"
)
MOST_MACHINES: Final = 12
"""Maximum number of machines in the table of errors."""


def environment(traces: Traces) -> Section | None:
    """Build the section: power by hour and type, a table by type, fitted power, machines with errors; None if empty."""
    kinds = traces.ask("gpu_environment", "gpu_type")
    if not kinds.traces:
        return None
    hours, fitted = traces.ask("gpu_environment", "hour"), traces.ask("gpu_power_by_use")
    known = pl.col("mean_w").count().over("trace") > 0
    zones = {trace: traces.lake.manifest(trace).zone for trace in kinds.traces}
    parts = hours.where(known).figures(
        "power-{trace}", lambda rows, trace: power_hours(rows, trace, zones[trace], traces.colour(trace))
    )
    parts += kinds.where(known).figures(
        "power-by-type-{trace}", lambda rows, trace: power_of_types(rows, trace, traces.colour(trace))
    )
    said = "Hours that samples cover, energy drawn in them, power in W, temperature in degrees C"
    parts += kinds.table("gpu_environment", "GPUs by type", said, ("trace", "gpu_type", *_COLUMNS))
    parts += fitted.table("gpu_power_by_use", "Power by use", FITTED)
    parts += _errors(traces)
    return Section(
        name="environment",
        title="Power and temperature of GPUs",
        intro="Measured: as the GPUs' exporters reported them, hour by hour. Hours without samples are absent.",
        parts=(*parts, *kinds.notes, *fitted.notes),
    )


def _errors(traces: Traces) -> list[Part]:
    """Return a table of the machines with most hours of XID errors, or a note that there are none."""
    asked = traces.ask("gpu_environment", "machine")
    ill = asked.rows.filter(pl.col("xid_hours") > 0)
    if ill.is_empty():
        return [Note(text="No reported XID error code changed.")]
    worst = ill.sort("xid_hours", "trace", "machine", descending=[True, False, False]).head(MOST_MACHINES)
    rows = worst.select("trace", "machine", "gpus", "gpu_hours", *_ERRORS, "max_c")
    said = f"Hours in which the XID error code of a GPU changed; up to {MOST_MACHINES} machines, most hours first"
    return [Table(name="gpu_errors", title="Machines with GPU errors", rows=rows, said=said)]
