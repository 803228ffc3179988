"""What predictions depend on: SHAP values of models, drawn as a beeswarm, and feature importances with their spread."""

import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import altair as alt
import numpy as np
import numpy.typing as npt
import polars as pl

from features.frames import has_ended
from features.history import History
from features.references import build_referenced
from features.tables import TASK_TYPES
from pipelines.report.panels import BLACK, BLUE, panel, tall

if TYPE_CHECKING:
    from modelserve.bundle.bundle import Bundle

EXPLAINED_JOBS: Final = 60
"""Maximum number of jobs in a SHAP plot, which has one point per job in the row of each feature."""
LEAST_LATER: Final = 20
"""Minimum number of jobs submitted after the model's cut; with fewer, the newest jobs are explained instead."""
EXPLAINED_FEATURES: Final = 7

FloatArray = npt.NDArray[np.float64]


@dataclass(frozen=True, slots=True, kw_only=True)
class Attribution:
    """SHAP values of one target: rows with feature, SHAP value and rank of the feature's value, most important first.

    `later` is true if all jobs were submitted after the end of the model's training data.
    """

    target: str
    rows: pl.DataFrame
    jobs: int
    later: bool


def attributions(bundle: "Bundle", jobs: pl.DataFrame, history: History) -> list[Attribution]:
    """Return the SHAP values of every target of a model, for jobs sampled as in `explained_jobs`.

    For a model of several quantiles, the values of the first quantile (the median of run time) are returned. Their unit
    is the model's: log run time (minus the reference in relative models), or log1p of use. Features are those known at
    a job's submission.
    """
    shown, later = explained_jobs(jobs, bundle)
    if not shown.height:
        return []
    built = build_referenced(shown, history, bundle.contract.names, relative=bundle.card.relative)
    matrix = bundle.contract.encode(built.features)
    values = shap_values(bundle, matrix)
    ranks = _ranks(matrix, bundle.contract.kinds)
    return [
        Attribution(target=target, rows=_rows(found, ranks, bundle.contract.names), jobs=shown.height, later=later)
        for target, found in values.items()
    ]


def explained_jobs(jobs: pl.DataFrame, bundle: "Bundle") -> tuple[pl.DataFrame, bool]:
    """Return at most `EXPLAINED_JOBS` ended jobs of the model's type, and whether all come after its training data.

    They are spread evenly over the jobs submitted after the training data or, if these are fewer than `LEAST_LATER`,
    are the newest jobs.
    """
    card = bundle.card
    column = "task_type" if card.task_type in TASK_TYPES else "workload"
    own = jobs.filter(pl.col(column) == card.task_type, has_ended()).sort("submit_ts", "cluster", "job_id", "role")
    after = own.filter(pl.col("submit_ts") >= card.until)
    later = after.height >= LEAST_LATER
    chosen = after if later else own.tail(EXPLAINED_JOBS)
    at = np.unique(np.linspace(0, max(chosen.height - 1, 0), EXPLAINED_JOBS).astype(np.int64))
    return chosen[at] if chosen.height else chosen, later


def shap_values(bundle: "Bundle", matrix: npt.NDArray[np.float32]) -> Mapping[str, FloatArray]:
    """Return the SHAP values of each target's first output, shape (rows, features), for encoded rows of that shape."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # importing shap warns about plot colours, and it draws no plots here
        import shap  # type: ignore[import-untyped]  # no type information is published
    import xgboost as xgb

    rows = xgb.DMatrix(
        matrix,
        feature_names=list(bundle.contract.names),
        feature_types=list(bundle.contract.kinds),
        enable_categorical=True,
    )
    found = {}
    for target in bundle.card.targets:
        values = np.asarray(shap.TreeExplainer(bundle.boosters[target]).shap_values(rows), dtype=np.float64)
        found[target] = values if values.ndim == 2 else values[:, :, 0]
    return found


def _ranks(matrix: npt.NDArray[np.float32], types: Sequence[str]) -> FloatArray:
    """Rank the values of each column from 0 to 1; NaN for unknown values, and in categorical or constant columns."""
    from scipy.stats import rankdata

    ranks = np.full(matrix.shape, np.nan)
    for column, kind in enumerate(types):
        known = ~np.isnan(matrix[:, column])
        values = matrix[known, column]
        if kind != "c" and len(values) and np.ptp(values) > 0:
            by_value = rankdata(values)
            ranks[known, column] = (by_value - by_value.min()) / np.ptp(by_value)
    return ranks


def _rows(values: FloatArray, ranks: FloatArray, names: tuple[str, ...]) -> pl.DataFrame:
    top = np.argsort(-np.abs(values).mean(axis=0), kind="stable")[:EXPLAINED_FEATURES]
    return pl.DataFrame(
        {
            "feature": [names[i] for i in top for _ in range(len(values))],
            "shap": values[:, top].T.ravel(),
            "rank": ranks[:, top].T.ravel(),
        }
    ).with_columns(pl.col("rank").fill_nan(None), pl.col("shap").round(5))


BINS: Final = 40
"""Number of bins of SHAP values in a beeswarm; points in the same bin are stacked."""
ROW_PX: Final = 30
RANKS: Final = "viridis"
"""Colour scheme of ranks: safe for colour-blind readers and without grey, which marks unknown ranks."""
UNKNOWN: Final = "#888888"


def importances(rows: pl.DataFrame, model: str, unit: str, held_out: str) -> alt.TopLevelMixin:
    """Draw how much the loss grows on average when a feature is shuffled, with one standard deviation over repeats.

    `held_out` describes the held-out rows and their number.
    """
    shown = rows.select("feature", "mean", low=pl.col("mean") - pl.col("std"), high=pl.col("mean") + pl.col("std"))
    base = alt.Chart(shown).encode(y=_named("feature", shown["feature"].to_list()))
    bars = base.mark_bar(color=BLUE, height={"band": 0.7}).encode(
        x=alt.X("mean:Q").title(f"loss growth ({unit})").axis(_amounts(4)),
        tooltip=["feature:N", alt.Tooltip("mean:Q", format=".3~g")],
    )
    spread = base.mark_rule(color=BLACK).encode(x="low:Q", x2="high:Q")
    of = [f"n = {rows['repeats'][0]} shuffles of {held_out}; line: one standard deviation"]
    return panel(bars + spread, f"Importance, {model}", of, height=tall(rows, 18))


def beeswarm(rows: pl.DataFrame, title: str, unit: str, jobs: str) -> alt.TopLevelMixin:
    """Draw each job's SHAP value of each feature, coloured by the rank of the feature's value among these jobs.

    `rows` has the columns feature, shap and rank (0 low to 1 high; null if the value is unknown or has no order), with
    the most important feature first. `jobs` is a text with the number and type of the jobs.
    """
    order = rows["feature"].unique(maintain_order=True).to_list()
    shown = rows.with_columns(pl.Series("offset", swarm_offsets(rows)))
    legend = alt.Legend(orient="bottom", direction="horizontal", gradientLength=96, values=[0, 1], format=".0f")
    ranked = alt.Color("rank:Q").title("0 lowest, 1 highest").scale(scheme=RANKS, domain=[0, 1])
    base = alt.Chart(shown).encode(
        x=alt.X("shap:Q").title(f"SHAP value ({unit})").axis(_amounts(5)),
        y=_named("feature", order),
        yOffset=alt.YOffset("offset:Q").scale(domain=[-1, 1]),
        tooltip=["feature:N", alt.Tooltip("shap:Q", format=".3~g"), alt.Tooltip("rank:Q", format=".2f")],
    )
    # Screen-reader labels of all points would make up most of the page; the chart as a whole has one.
    known = base.transform_filter("isValid(datum.rank)").mark_circle(size=16, opacity=0.9, aria=False)
    unknown = base.transform_filter("!isValid(datum.rank)").mark_circle(size=16, opacity=0.9, color=UNKNOWN, aria=False)
    zero = alt.Chart(pl.DataFrame({"shap": [0.0]})).mark_rule(color=BLACK, strokeWidth=0.7).encode(x="shap:Q")
    of = [f"n = {jobs}; one point per job, coloured by the feature's rank; grey: category or unknown"]
    points = known.encode(color=ranked.legend(legend))
    return panel(zero + points + unknown, title, of, height=ROW_PX * len(order))


def swarm_offsets(rows: pl.DataFrame) -> list[float]:
    """Return each point's vertical offset in its feature's row (-1 to 1); points in the same bin stack from the middle.

    >>> swarm_offsets(pl.DataFrame({"feature": ["a", "a", "a", "b"], "shap": [1.0, 1.0, 5.0, 2.0]}))
    [0.0, 0.5, 0.0, 0.0]
    """
    shap = rows["shap"].to_numpy()
    wide = float(np.ptp(shap)) if len(shap) else 0.0
    column = np.zeros(len(shap), dtype=np.int64) if wide == 0 else ((shap - shap.min()) / wide * BINS).astype(np.int64)
    heights = (
        rows.select("feature", bin=pl.Series(column))
        .with_columns(at=pl.int_range(pl.len()).over("feature", "bin"))
        .select(((pl.col("at") + 1) // 2) * (pl.when(pl.col("at") % 2 == 1).then(1).otherwise(-1)))
        .to_series()
    )
    tallest = max(heights.abs().max() or 0, 2)
    return [float(height / tallest) + 0.0 for height in heights]


def _amounts(ticks: int) -> alt.Axis:
    """Return an x axis that stays inside the chart beside wide labels: its title ends at the right edge."""
    return alt.Axis(tickCount=ticks, titleAnchor="end", titleAlign="right")


def _named(column: str, order: list[str]) -> alt.Y:
    """Return a y axis with small, wide labels: long names must not be cut, because they differ at the end."""
    return alt.Y(f"{column}:N").title(None).sort(order).axis(labelFontSize=10, labelLimit=240, grid=True)
