"""The section on how busy machines are: by weekday and hour, and by type of machine.

Called by `pipelines.report.report`.
"""

import polars as pl

from pipelines.report.charts.grids import BUSY, by_machine_type, utilisation
from pipelines.report.parts import Figure, Part, Section, Traces


def busyness(traces: Traces) -> Section:
    """Return heat maps of the busy fraction of each resource, and its range over types of machines."""
    hours, kinds = traces.ask("utilisation_by_hour", "weekday"), traces.ask("utilisation_by_machine_type")
    parts: list[Part] = []
    for trace in hours.traces:
        for resource in BUSY:
            rows = _of(hours.of(trace), resource)
            if rows.height:
                chart = utilisation(rows, resource, trace, traces.lake.manifest(trace).zone)
                parts.append(Figure(name=f"busy-{trace}-{resource}", chart=chart, rows=rows))
    for trace in kinds.traces:
        for resource in BUSY:
            rows = _of(kinds.of(trace), resource)
            if rows.height:
                chart = by_machine_type(rows, resource, trace, traces.colour(trace))
                parts.append(Figure(name=f"busy-by-type-{trace}-{resource}", chart=chart, rows=rows))
    return Section(
        name="utilisation",
        title="Utilisation",
        intro="Means over machine-hours in the trace's own time zone: a machine sampled each minute weighs no more "
        "than one sampled each hour. Hours without a sample are empty, not idle.",
        parts=(*parts, *hours.notes),
    )


def _of(rows: pl.DataFrame, resource: str) -> pl.DataFrame:
    return rows.filter(pl.col("resource") == resource)
