"""The report's sections on run times, queueing delays and machine use over the week."""

from functools import partial
from typing import TYPE_CHECKING, Final

import polars as pl

from pipelines.report.charts.distributions import duration_ranges, durations
from pipelines.report.charts.grids import BUSY, by_machine_type, utilisation
from pipelines.report.parts import Figure, Part, Section, Traces, with_short_names

if TYPE_CHECKING:
    import altair as alt

_COLUMNS: Final = ("trace", "jobs", "mean_s", "p50_s", "p90_s", "p99_s", "max_s", "over_24h_share")
_BY: Final = {"size": "GPUs of the job", "status": "status", "task_type": "kind", "vc": "virtual cluster"}
MOST_PARTS: Final = 12


def run_times(traces: Traces) -> Section:
    """Build the section on run times: their distribution, and ranges by size, status and type of work."""
    return _section(traces, "run_time", "Run times", "run-times", ("size", "status", "task_type"))


def waits(traces: Traces) -> Section:
    """Build the section on queueing delays: their distribution, and ranges by size and by virtual cluster."""
    return _section(traces, "queueing_delay", "Queueing", "queueing", ("size", "vc"))


_INTRO: Final = {
    "run_time": "From start to end, over all jobs with a known run time, whatever their status; for jobs cut off at "
    "the trace's end, the time until then.",
    "queueing_delay": "From submission to start, over all jobs with a known wait.",
}


def _section(traces: Traces, statistic: str, title: str, name: str, by: tuple[str, ...]) -> Section:
    whole = traces.ask(statistic)
    parts = whole.figure(statistic, lambda rows: durations(rows, title, traces.names))
    for dimension in by if whole.rows.width else ():
        split = traces.ask(statistic, dimension)
        for trace in split.traces:
            rows = _most_jobs(with_short_names(split.of(trace)), dimension)
            if rows.height > 1:
                chart = duration_ranges(rows, title, dimension, _BY[dimension], trace, traces.colour(trace))
                parts.append(Figure(name=f"{statistic}-by-{dimension}-{trace}", chart=chart, rows=rows))
    extra = tuple(n for n in ("gpu_hours_over_24h_share", "censored_share") if n in whole.rows.columns)
    said = "Seconds; shares of jobs, and of GPU-hours, beyond 24 hours"
    parts += whole.table(f"{statistic}-table", title, said, (*_COLUMNS, *extra))
    return Section(name=name, title=title, intro=_INTRO[statistic], parts=(*parts, *whole.notes))


def _most_jobs(rows: pl.DataFrame, dimension: str) -> pl.DataFrame:
    """Keep the values of `dimension` with the most jobs, in their original order."""
    kept = rows.with_row_index("at").sort("jobs", "at", descending=[True, False]).head(MOST_PARTS).sort("at").drop("at")
    if dimension != "size":
        return kept.sort("jobs", descending=True, maintain_order=True)
    from pipelines.report.charts.shares import SIZES

    order = {name: i for i, name in enumerate(("0", *SIZES))}
    return kept.filter(pl.col("size").is_not_null()).sort(pl.col("size").replace_strict(order, return_dtype=pl.Int64))


def busyness(traces: Traces) -> Section:
    """Build the section on machine use: heat maps of each resource's busy fraction, and its range by machine type."""
    hours, kinds = traces.ask("utilisation_by_hour", "weekday"), traces.ask("utilisation_by_machine_type")

    def by_hour(resource: str, rows: pl.DataFrame, trace: str) -> "alt.TopLevelMixin":
        return utilisation(rows, resource, trace, traces.lake.manifest(trace).zone)

    def by_type(resource: str, rows: pl.DataFrame, trace: str) -> "alt.TopLevelMixin":
        return by_machine_type(rows, resource, trace, traces.colour(trace))

    parts: list[Part] = []
    for resource in BUSY:
        of_resource = pl.col("resource") == resource
        parts += hours.where(of_resource).figures("busy-{trace}-" + resource, partial(by_hour, resource))
        parts += kinds.where(of_resource).figures("busy-by-type-{trace}-" + resource, partial(by_type, resource))
    return Section(
        name="utilisation",
        title="Utilisation",
        intro="Means over machine-hours in the trace's own time zone: machines sampled each minute weigh as much "
        "as machines sampled each hour. Hours without a sample are empty, not idle.",
        parts=(*parts, *hours.notes),
    )
