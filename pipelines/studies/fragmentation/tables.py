"""What the curves come to where as many GPUs had been asked for as there are, beside the published figures.

Nothing is run here. Called by `fgd.experiment`; the bars and a chart are drawn from the same rows.
"""

from collections.abc import Sequence
from typing import Final

import polars as pl

from pipelines.studies.fragmentation.arms import PUBLISHED_POPULARITY, WORKLOADS, is_arm

Row = dict[str, object]

AT_PCT: Final = 100
"""GPUs asked for so far, in percent of all: where placements are compared."""

ARM: Final = ("workload", "policy", "popularity", "ties", "nodes")
"""What a curve belongs to, but for its seed."""

LOOSE_POINTS: Final = {"gpu_clustering": 1.0, "gpu_packing": 1.0}
"""How far means of placements may be from the published ones that depend on the order of nodes by far."""

LEAST_POINTS: Final = 0.5
SIGMAS: Final = 3.0


def unallocated_rows(curves: pl.DataFrame, published: pl.DataFrame) -> list[Row]:
    """Return a row per workload and arm: percent of GPUs unallocated at `AT_PCT`, mean and sd over seeds.

    Beside it, where the arm is the published one in either order of the nodes, the published mean and sd, the
    difference in points, how large that may be (`bar_points`), and whether it is within (`met`). All of these are null
    elsewhere, and without published figures.
    """
    ours = _summed_up(curves.filter(pl.col("arrived_pct") == AT_PCT), ARM, "unallocated_pct", "sd")
    theirs = _summed_up(published.filter(pl.col("arrived_pct") == AT_PCT), ARM[:2], "published_pct", "published_sd")
    beside = ours.join(theirs.drop("seeds"), on=ARM[:2], how="left", maintain_order="left")
    as_published = is_arm(PUBLISHED_POPULARITY)
    difference = pl.col("unallocated_pct") - pl.col("published_pct")
    judged = beside.with_columns(
        pl.when(as_published).then("published_pct").alias("published_pct"),
        pl.when(as_published).then("published_sd").alias("published_sd"),
    ).with_columns(
        difference_points=difference,
        bar_points=pl.when(pl.col("published_pct").is_not_null()).then(_bar()),
    )
    return judged.with_columns(met=pl.col("difference_points").abs() <= pl.col("bar_points")).to_dicts()


def mean_curves(curves: pl.DataFrame, keys: Sequence[str] = ARM) -> pl.DataFrame:
    """Return curves as means over their seeds."""
    grouped = curves.group_by(*keys, "arrived_pct", maintain_order=True)
    return grouped.agg(pl.col("unallocated_pct", "fragmented_pct").mean(), pl.len().alias("seeds"))


def by_workload(names: Sequence[str]) -> list[str]:
    """Return workloads in the order in which they are shown: the published ones, then others by name."""
    return sorted(names, key=lambda name: (WORKLOADS.index(name) if name in WORKLOADS else len(WORKLOADS), name))


def _summed_up(rows: pl.DataFrame, keys: Sequence[str], mean: str, sd: str) -> pl.DataFrame:
    value = pl.col("unallocated_pct")
    return rows.group_by(keys, maintain_order=True).agg(value.mean().alias(mean), value.std().alias(sd), seeds=pl.len())


def _bar() -> pl.Expr:
    tight = pl.max_horizontal(SIGMAS * pl.col("published_sd").fill_null(0.0), LEAST_POINTS)
    return pl.col("policy").replace_strict(LOOSE_POINTS, default=None, return_dtype=pl.Float64).fill_null(tight)
