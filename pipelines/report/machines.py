"""The report's sections on machines: use over the week, and the power, temperature and errors of measured GPUs."""

import math
from functools import partial
from typing import Final

import altair as alt
import polars as pl

from pipelines.report.overview import WEEKDAYS
from pipelines.report.panels import AMOUNTS, drawn, panel, tips, total
from pipelines.report.parts import Note, Part, Section, Table, Traces

BUSY: Final = {"cpu": "CPU", "mem": "memory", "gpu": "GPU"}
_COLUMNS: Final = ("gpus", "gpu_hours", "sampled_h", "energy_kwh", "mean_w", "max_w", "mean_c", "max_c")
FITTED: Final = (
    "Least squares over machine-hours: power of a GPU at busy fraction 0 (idle_w) and 1 (full_w), and the share of the "
    "variance explained (r2); figures for the file of taut simulate --power"
)
MOST_MACHINES: Final = 12
"""Maximum number of machines in the table of errors."""


def busyness(traces: Traces) -> Section:
    """Build the section on machine use: a heat map of each resource's busy fraction."""
    hours = traces.ask("utilisation_by_hour", "weekday")

    def heat_map(resource: str, rows: pl.DataFrame, trace: str) -> alt.TopLevelMixin:
        return utilisation(rows, resource, trace, traces.lake.manifest(trace).zone)

    parts: list[Part] = []
    for resource in BUSY:
        shown = hours.where(pl.col("resource") == resource)
        parts += shown.figures("busy-{trace}-" + resource, partial(heat_map, resource))
    return Section(
        name="utilisation",
        title="Utilisation",
        intro="Means over machine-hours in the trace's own time zone: machines sampled each minute weigh as much "
        "as machines sampled each hour. Hours without a sample are empty, not idle.",
        parts=(*parts, *hours.notes),
    )


def utilisation(rows: pl.DataFrame, resource: str, trace: str, zone: str) -> alt.TopLevelMixin:
    """Draw the mean busy fraction of one resource by local weekday and hour; hours without samples stay empty."""
    days = pl.col("weekday").replace_strict(dict(enumerate(WEEKDAYS, start=1)), return_dtype=pl.String)
    shown = rows.select("hour", "machine_hours", "mean_frac", day=days)
    # The colour scale ends at the busiest hour, rounded up to 10 %: up to 100 %, a rarely busy trace would be dark.
    most = max(math.ceil(10 * (shown["mean_frac"].max() or 0)), 1) / 10  # type: ignore[arg-type, operator]  # fractions
    legend = alt.Legend(format="%", orient="right", gradientLength=110, title=None)
    chart = drawn(
        shown,
        "rect",
        x=alt.X("hour:O").title("local hour of the day").axis(labelAngle=0, labelOverlap=True, labelSeparation=5),
        y=alt.Y("day:O").title(None).sort(list(WEEKDAYS)),
        color=alt.Color("mean_frac:Q").scale(scheme=AMOUNTS, domain=[0, most]).legend(legend),
        tooltip=["day:O", "hour:O", *tips(".1%", "mean_frac"), "machine_hours:Q"],
    )
    of = [f"n = {total(rows, 'machine_hours')} machine-hours; {zone}; colours to {most:.0%} busy"]
    return panel(chart, f"{BUSY[resource]} busy, mean, {trace}", of)


def environment(traces: Traces) -> Section | None:
    """Build the section: tables by type of GPU, of fitted power, and of machines with errors; None if empty."""
    kinds = traces.ask("gpu_environment", "gpu_type")
    if not kinds.traces:
        return None
    fitted = traces.ask("gpu_power_by_use")
    said = "Hours that samples cover, energy drawn in them, power in W, temperature in degrees C"
    parts = kinds.table("gpu_environment", "GPUs by type", said, ("trace", "gpu_type", *_COLUMNS))
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
    rows = worst.select("trace", "machine", "gpus", "gpu_hours", "xid_hours", "xid_gpus", "max_c")
    said = f"Hours in which the XID error code of a GPU changed; up to {MOST_MACHINES} machines, most hours first"
    return [Table(name="gpu_errors", title="Machines with GPU errors", rows=rows, said=said)]
