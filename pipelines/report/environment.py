"""The report's section on GPUs as their exporters measured them: power, temperature, energy and errors.

The report has it only if a trace has rows in `environment`.
"""

from typing import Final

import polars as pl

from pipelines.report.charts.power import power_hours, power_of_types
from pipelines.report.parts import Figure, Note, Part, Section, Table, Traces

_COLUMNS: Final = ("gpus", "gpu_hours", "sampled_h", "energy_kwh", "mean_w", "max_w", "mean_c", "max_c")
_ERRORS: Final = ("xid_hours", "xid_gpus")
MOST_MACHINES: Final = 12
"""Maximum number of machines in the table of errors."""


def environment(traces: Traces) -> Section | None:
    """Build the section: power by hour and type, a table by type, fitted power, machines with errors; None if empty."""
    kinds = traces.ask("gpu_environment", "gpu_type")
    if not kinds.traces:
        return None
    hours, fitted = traces.ask("gpu_environment", "hour"), traces.ask("gpu_power_by_use")
    parts: list[Part] = []
    for trace in kinds.traces:
        colour, zone = traces.colour(trace), traces.lake.manifest(trace).zone
        if _has_power(kinds.of(trace)):
            by_hour = hours.of(trace)
            parts.append(Figure(name=f"power-{trace}", chart=power_hours(by_hour, trace, zone, colour), rows=by_hour))
            by_type = kinds.of(trace)
            parts.append(
                Figure(name=f"power-by-type-{trace}", chart=power_of_types(by_type, trace, colour), rows=by_type)
            )
    rows = kinds.rows.select("trace", "gpu_type", *_COLUMNS)
    said = "Hours that samples cover, energy drawn in them, power in W, temperature in degrees C"
    parts.append(Table(name="gpu_environment", title="GPUs by type", rows=rows, said=said))
    parts += [_fit(fitted.rows)] if fitted.rows.width else []
    parts += _errors(traces)
    return Section(
        name="environment",
        title="Power and temperature of GPUs",
        intro="Measured: as the GPUs' exporters reported them, hour by hour. Hours without samples are absent.",
        parts=(*parts, *kinds.notes, *fitted.notes),
    )


def _has_power(rows: pl.DataFrame) -> bool:
    return rows["mean_w"].count() > 0


def _fit(rows: pl.DataFrame) -> Table:
    said = (
        "Least squares over machine-hours: power of a GPU at busy fraction 0 (idle_w) and 1 (full_w), and the share of "
        "the variance explained (r2); figures for the file of taut simulate --power"
    )
    return Table(name="gpu_power_by_use", title="Power by use", rows=rows, said=said)


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
