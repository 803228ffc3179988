"""Energy and time of workloads over a GPU's frequency, and the errors of the models fitted to them.

Drawn from the tables of `pipelines.studies.energy.fits`, who calls this.
"""

from collections.abc import Sequence
from typing import Final

import altair as alt
import polars as pl

from pipelines.report.charts.looks import BLACK, BLUE, GREEN, VERMILLION, titled

FORMS: Final = {
    "time_error_pct": "time, a + b/f",
    "power_cubic_pct": "watts, p0 + c·f³",
    "power_square_pct": "watts, p0 + c·f²",
    "power_linear_pct": "watts, p0 + c·f",
}
"""By column: what is fitted."""

COLOURS: Final = (BLACK, BLUE, GREEN, VERMILLION)
WIDTH, HEIGHT = 330, 260


def energy_over_frequency(table: pl.DataFrame, of: Sequence[str]) -> alt.TopLevelMixin:
    """Draw each workload's energy and time a unit of work over the frequency, relative to the highest one's."""
    top = {name: pl.col(name).sort_by("frequency_mhz").last().over("workload") for name in ("perf", "watts")}
    energy = (pl.col("watts") / pl.col("perf")) / (top["watts"] / top["perf"])
    shown = table.with_columns(energy=energy, time=top["perf"] / pl.col("perf")).with_columns(
        best=pl.col("energy") == pl.col("energy").min().over("workload")
    )
    panels = [
        _over_frequency(shown, column, title)
        for column, title in {
            "energy": "energy a unit of work, relative to the highest frequency",
            "time": "time a unit of work, relative to the highest frequency",
        }.items()
    ]
    chart: alt.VConcatChart = alt.vconcat(alt.hconcat(*panels, spacing=30))
    return titled(chart, "Energy and time over a GPU's core frequency", of)


def errors_of_fits(rows: pl.DataFrame, of: Sequence[str]) -> alt.TopLevelMixin:
    """Draw each workload's error by what is fitted, with the mean of all as a tick."""
    long = rows.unpivot(list(FORMS), index="workload", variable_name="form", value_name="error_pct").with_columns(
        form=pl.col("form").replace_strict(FORMS)
    )
    names = list(FORMS.values())
    y = alt.Y("form:N").title(None).sort(names).axis(labelLimit=250)
    colour = alt.Color("form:N").scale(domain=names, range=list(COLOURS)).legend(None)
    base = alt.Chart(long)
    layers = alt.layer(
        base.mark_circle(size=55, opacity=0.55).encode(
            x=alt.X("error_pct:Q").title("mean absolute relative error of a workload, % (tick: mean of all)"),
            y=y,
            color=colour,
            tooltip=["workload:N", "error_pct:Q"],
        ),
        base.mark_tick(thickness=3, size=34, color=BLACK).encode(x="mean(error_pct):Q", y=y),
    ).properties(width=2 * WIDTH, height=190)
    return titled(alt.vconcat(layers), "Errors of models of a GPU's time and watts over its core frequency", of)


def _over_frequency(shown: pl.DataFrame, column: str, title: str) -> alt.LayerChart | alt.FacetChart:
    x = alt.X("frequency_mhz:Q").title("core frequency, MHz").scale(zero=False)
    y = alt.Y(f"{column}:Q").title(title).scale(zero=False)
    base = alt.Chart(shown)
    layers = alt.layer(
        base.mark_line(opacity=0.45, color=BLUE, strokeWidth=1.2).encode(x=x, y=y, detail="workload:N"),
        base.transform_filter("datum.best")
        .mark_circle(size=60, color=VERMILLION, opacity=0.9)
        .encode(x=x, y=y, tooltip=["workload:N", "frequency_mhz:Q", f"{column}:Q"]),
    )
    return layers.properties(width=WIDTH, height=HEIGHT)
