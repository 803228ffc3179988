"""Tables of GPUs unallocated when requests equal capacity, next to the published values, with tolerances.

Nothing is simulated here. Called by `study`; a chart is drawn from the same rows.
"""

from collections.abc import Iterable, Mapping, Sequence
from itertools import pairwise
from string import digits
from typing import Final

import polars as pl

from pipelines.studies.fragmentation.arms import (
    DEFAULT,
    FGD,
    FIRST_TIES,
    POLICIES,
    PUBLISHED_POPULARITY,
    RANDOM_TIES,
    is_arm,
)
from pipelines.studies.study import Row

AT_PCT: Final = 100
"""Percent of GPUs requested so far at which placements are compared."""

ARM: Final = ("workload", "policy", "popularity", "ties")
"""Columns that identify a curve together with its seed."""

WITHIN_POINTS: Final = 0.5
"""Tolerance in percentage points: between our mean and the published one, and between rules for ties."""


def unallocated_rows(curves: pl.DataFrame, published: pl.DataFrame) -> list[Row]:
    """Return one row per workload and arm: percent of GPUs unallocated at `AT_PCT`, mean and sd over seeds.

    Arms with the published popularity and tie rule also have the published mean and sd, the difference in percentage
    points, and whether it is within `WITHIN_POINTS` (`met`). For other arms, and without published results, these
    columns are null.
    """
    ours = _summed_up(curves.filter(pl.col("arrived_pct") == AT_PCT), ARM, "unallocated_pct", "sd")
    theirs = _summed_up(published.filter(pl.col("arrived_pct") == AT_PCT), ARM[:2], "published_pct", "published_sd")
    beside = ours.join(theirs.drop("seeds"), on=ARM[:2], how="left", maintain_order="left")
    as_published = is_arm(PUBLISHED_POPULARITY)
    difference = pl.col("unallocated_pct") - pl.col("published_pct")
    judged = beside.with_columns(
        pl.when(as_published).then("published_pct").alias("published_pct"),
        pl.when(as_published).then("published_sd").alias("published_sd"),
    ).with_columns(difference_points=difference)
    return judged.with_columns(met=pl.col("difference_points").abs() <= WITHIN_POINTS).to_dicts()


def mean_curves(curves: pl.DataFrame) -> pl.DataFrame:
    """Return the mean curves of unallocated GPUs over seeds, one for each workload and placement."""
    grouped = curves.group_by("workload", "policy", "arrived_pct", maintain_order=True)
    return grouped.agg(pl.col("unallocated_pct").mean())


def by_workload(names: Sequence[str]) -> list[str]:
    """Sort workloads for display: the recorded one, then the others by name and number (gpushare40, gpushare100)."""
    return sorted(names, key=lambda name: (name != DEFAULT, name.rstrip(digits), len(name), name))


def _summed_up(rows: pl.DataFrame, keys: Sequence[str], mean: str, sd: str) -> pl.DataFrame:
    value = pl.col("unallocated_pct")
    return rows.group_by(keys, maintain_order=True).agg(value.mean().alias(mean), value.std().alias(sd), seeds=pl.len())


FEWER_PCT: Final = (44.0, 53.0)
"""Accepted range, in percent, of the reduction of unallocated GPUs by FGD against dot product: published are 49 %, and
the range allows for the spread over seeds."""

ORDER: Final = ((FGD,), ("best_fit_gpu",), ("gpu_packing", "gpu_clustering"), ("dot_product",), ("random",))
"""Expected order of the placements, fewest unallocated GPUs first; placements in one group may come in any order."""

NOT_JUDGED: Final = "not judged: no published figures"


def bars(rows: Sequence[Row]) -> list[Row]:
    """Compare the rows of `unallocated_rows` with the expected results; one row per expectation."""
    columns = ("bar", "found", "expected", "met")
    judged = (*_published(rows), *_on_default(_default(rows)), *_ties(rows))
    return [{name: row[name] for name in columns} for row in judged]


def _published(rows: Sequence[Row]) -> Iterable[Row]:
    for policy in POLICIES:
        run = [row for row in rows if row["policy"] == policy and _as_published(row)]
        judged = [row for row in run if row["met"] is not None]
        met = sum(row["met"] is True for row in judged)
        bar = {"bar": f"{policy} as published", "expected": f"all within {WITHIN_POINTS:g} points"}
        if judged:
            worst = max(judged, key=lambda row: abs(_number(row["difference_points"])))
            found = f"{met} of {len(judged)} workloads, farthest {_number(worst['difference_points']):+.2f}"
            yield {**bar, "found": found, "met": met == len(judged)}
        elif run:
            yield {**bar, "found": NOT_JUDGED, "met": None}


def _as_published(row: Row) -> bool:
    """Return whether a row has the popularity and the tie rule of the published results."""
    return row["popularity"] in (None, PUBLISHED_POPULARITY) and row["ties"] in (None, FIRST_TIES)


def _default(rows: Sequence[Row]) -> dict[str, float]:
    """Return the unallocated GPUs in percent by placement, on the workload `default`, with the published settings."""
    return {
        str(row["policy"]): _number(row["unallocated_pct"])
        for row in rows
        if row["workload"] == DEFAULT and _as_published(row)
    }


def _on_default(unallocated: Mapping[str, float]) -> Iterable[Row]:
    if set(unallocated) == set(POLICIES):
        ascending = sorted(unallocated, key=lambda policy: unallocated[policy])
        places = [[unallocated[policy] for policy in place] for place in ORDER]
        yield {
            "bar": f"order on {DEFAULT}",
            "found": " < ".join(ascending),
            "expected": " < ".join(" or ".join(place) for place in ORDER),
            "met": all(max(left) < min(right) for left, right in pairwise(places)),
        }
    if FGD in unallocated and unallocated.get("dot_product", 0.0) > 0.0:
        fewer = 100.0 * (1.0 - unallocated[FGD] / unallocated["dot_product"])
        least, most = FEWER_PCT
        yield {
            "bar": f"{FGD} against dot_product on {DEFAULT}",
            "found": f"{fewer:.1f} % fewer unallocated",
            "expected": f"{least:g} to {most:g} %",
            "met": least <= fewer <= most,
        }


def _ties(rows: Sequence[Row]) -> Iterable[Row]:
    """Compare FGD under random ties with FGD under ties to the first node, with all pods as target workload."""
    by_ties: dict[object, dict[str, float]] = {FIRST_TIES: {}, RANDOM_TIES: {}}
    for row in rows:
        if row["policy"] == FGD and row["popularity"] == 1.0:
            by_ties[row["ties"]][str(row["workload"])] = _number(row["unallocated_pct"])
    first, drawn = by_ties[FIRST_TIES], by_ties[RANDOM_TIES]
    points = {workload: drawn[workload] - first[workload] for workload in drawn if workload in first}
    if not points:
        return
    within = sum(abs(each) <= WITHIN_POINTS for each in points.values())
    worst = max(points, key=lambda workload: abs(points[workload]))
    shown = f"{DEFAULT} {points[DEFAULT]:+.2f}, " if DEFAULT in points else ""
    yield {
        "bar": f"{FGD} aiming at all pods: random ties against the first node",
        "found": f"{within} of {len(points)} workloads; {shown}farthest {worst} {points[worst]:+.2f}",
        "expected": f"all within {WITHIN_POINTS:g} points",
        "met": within == len(points),
    }


def _number(value: object) -> float:
    return value if isinstance(value, float) else float("nan")
