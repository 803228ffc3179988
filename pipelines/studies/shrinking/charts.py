"""Charts over load: jobs deployed, completion rate, and use of every resource, by arm.

They correspond to figures 2 to 4 of Yang, Hong and Tang. Drawn from the table `load`. `truth` is the slowdown model
that runs are simulated under. Called by `study`.
"""

from collections.abc import Sequence
from typing import Final

import altair as alt
import polars as pl

from pipelines.report.charts.looks import BLACK, BLUE, GREEN, PURPLE, VERMILLION, titled

ARMS: Final = {
    "requested": ("as requested", BLACK, [1, 0]),
    "shrunk": ("shrunk, with floors", BLUE, [1, 0]),
    "unguarded": ("shrunk as in the paper", VERMILLION, [6, 3]),
    "oracle": ("oracle use", GREEN, [2, 2]),
}
"""Legend name, colour and dash of each arm, in legend order."""

NAMES: Final = {arm: name for arm, (name, _, _) in ARMS.items()}
BASELINE: Final = NAMES["requested"]
CLAIM: Final = "claim of the paper"

TRUTHS: Final = ("unchanged", "predicted", "contention")
GNN: Final = {"with": "with GNN", "without": "without GNN"}

WIDTH, HEIGHT = 230, 170
LOAD: Final = "offered load, jobs per hour"
PAPER_LOAD_PER_H: Final = 70.0
RESOURCES: Final = {"cpu": "CPU", "mem": "memory", "gpu": "GPU"}
HELD: Final = {"allocated": "allocated", "used": "truly used"}
DEPLOYED_PCT, COMPLETION_PCT = 25.3, 15.2
USE_PCT: Final = {"cpu": -2.0, "mem": 8.0, "gpu": 7.2}
"""Gains in allocated resources that Yang, Hong and Tang claim, in percent."""

SHARES: Final = frozenset(
    {"complete_rate", *(f"{resource}_{what}_frac" for resource in ("cpu", "mem", "gpu") for what in HELD)}
)
"""Columns that cannot exceed 1."""


def deployed_over_load(rows: pl.DataFrame, of: Sequence[str]) -> alt.TopLevelMixin:
    """Draw jobs deployed against load, a column of panels for each slowdown model, a row with and one without GNN jobs.

    The gain claimed by Yang, Hong and Tang is drawn at 70 jobs/h, added to the jobs that our baseline deploys.
    """
    shown = _levels(rows, "deployed", "truth")
    claimed = _claimed(shown, DEPLOYED_PCT, in_points=False)
    chart = _lines(pl.concat([shown, claimed]), "jobs deployed in 12 h", form="d", panels=_truths())
    return titled(chart, "Figure 2: jobs deployed over load", of)


def completion_over_load(rows: pl.DataFrame, of: Sequence[str]) -> alt.TopLevelMixin:
    """Draw the completion rate against load, with a column of panels for each slowdown model.

    The gain claimed by Yang, Hong and Tang is drawn as a span, because it may be relative or in percentage points.
    """
    shown = _levels(rows, "complete_rate", "truth")
    claimed = _claimed(shown, COMPLETION_PCT, in_points=True)
    chart = _lines(pl.concat([shown, claimed]), "finished / (finished + queued)", form="%", panels=_truths())
    return titled(chart, "Figure 3: completion rate over load", [*of, _READINGS])


def use_over_load(rows: pl.DataFrame, of: Sequence[str], *, truth: str = "contention") -> alt.TopLevelMixin:
    """Draw the allocated and the used share of every resource against load, under one slowdown model.

    The gains claimed by Yang, Hong and Tang are drawn with the allocated shares, to which they refer.
    """
    kept = rows.filter(pl.col("truth") == truth)
    panels = [f"{name}, {said}" for said in HELD.values() for name in RESOURCES.values()]
    frames = []
    for resource, name in RESOURCES.items():
        for what, said in HELD.items():
            shown = _levels(kept, f"{resource}_{what}_frac", pl.lit(f"{name}, {said}"))
            frames.append(shown)
            if what == "allocated":
                frames.append(_claimed(shown, USE_PCT[resource], in_points=True))
    chart = _lines(pl.concat(frames), "share of capacity", form="%", panels=panels, down=True)
    return titled(chart, f"Figure 4: use of resources over load, truth {truth}", [*of, _READINGS])


_READINGS: Final = "claim of the paper: on top of our baseline, its percentage read as points and as relative"


def _truths() -> list[str]:
    return [f"truth: {truth}" for truth in TRUTHS]


def _levels(rows: pl.DataFrame, column: str, panel: str | pl.Expr) -> pl.DataFrame:
    """Return rows for drawing: by population, panel, arm and load, the value of a column with its interval."""
    by_truth = pl.concat_str(pl.lit("truth: "), panel) if isinstance(panel, str) else panel
    low, high = _possible(column, pl.col(f"{column}_lo")), _possible(column, pl.col(f"{column}_hi"))
    kept = rows.filter(pl.col("devices") == "all", pl.col("arm").is_in(list(ARMS)))
    gnn, name = pl.col("gnn").replace_strict(GNN), pl.col("arm").replace_strict(NAMES)
    return kept.select("rate_per_h", gnn=gnn, name=name, panel=by_truth, level=column, low=low, high=high)


def _possible(column: str, bound: pl.Expr) -> pl.Expr:
    """Return an end of an interval, clipped to the possible values: at least 0, and for a share at most 1."""
    return bound.clip(0.0, 1.0 if column in SHARES else None)


def _claimed(shown: pl.DataFrame, gain_pct: float, *, in_points: bool) -> pl.DataFrame:
    """Return rows for drawing a claimed gain at 70 jobs/h, added to our baseline.

    The gain is read as relative; with `in_points` also as percentage points, which gives a span.
    """
    base = shown.filter(pl.col("name") == BASELINE, pl.col("rate_per_h") == PAPER_LOAD_PER_H)
    relative = pl.col("level") * (1.0 + gain_pct / 100.0)
    other = pl.col("level") + gain_pct / 100.0 if in_points else relative
    if in_points:
        relative, other = relative.clip(upper_bound=1.0), other.clip(upper_bound=1.0)
    return base.with_columns(
        name=pl.lit(CLAIM),
        level=relative,
        low=pl.min_horizontal(relative, other),
        high=pl.max_horizontal(relative, other),
    )


def _lines(shown: pl.DataFrame, title: str, *, form: str, panels: Sequence[str], down: bool = False) -> alt.FacetChart:
    """Draw lines against load, with panels as columns and populations as rows, or with `down` the other way round."""
    x = alt.X("rate_per_h:Q").title(LOAD).scale(zero=False, nice=False).axis(labelFlush=False)
    y = alt.Y("level:Q").title(title).axis(format=form)
    low = alt.Y("low:Q")
    names = [*NAMES.values(), CLAIM]
    colours = [*(colour for _, colour, _ in ARMS.values()), PURPLE]
    dashes = [*(dash for _, _, dash in ARMS.values()), [1, 0]]
    legend = alt.Legend(orient="bottom", columns=5, symbolOpacity=1.0)
    colour = alt.Color("name:N").title(None).scale(domain=names, range=colours).legend(legend)
    dash = alt.StrokeDash("name:N").title(None).scale(domain=names, range=dashes)
    shapes = [*("stroke" for _ in ARMS), "diamond"]
    shape = alt.Shape("name:N").title(None).scale(domain=names, range=shapes)
    ours = alt.Chart(shown).transform_filter(alt.datum.name != CLAIM)
    theirs = alt.Chart(shown).transform_filter(alt.datum.name == CLAIM)
    layers = alt.layer(
        ours.mark_area(opacity=0.18).encode(x=x, y=low, y2="high:Q", color=colour),
        ours.mark_line(strokeWidth=2).encode(x=x, y=y, color=colour, strokeDash=dash),
        theirs.mark_rule(strokeWidth=3).encode(x=x, y=low, y2="high:Q", color=colour),
        theirs.mark_point(filled=True, size=90, opacity=1.0).encode(x=x, y=y, color=colour, shape=shape),
    ).properties(width=WIDTH, height=HEIGHT)
    panel, population = ("row", "column") if down else ("column", "row")
    sides = {"column": alt.Column, "row": alt.Row}
    chart: alt.FacetChart = layers.facet(
        **{
            panel: sides[panel]("panel:N").title(None).sort(list(panels)),
            population: sides[population]("gnn:N").title(None).sort(list(GNN.values())),
        }
    )
    return chart.resolve_scale(y="independent") if down else chart
