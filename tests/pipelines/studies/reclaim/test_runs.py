"""Shares of the oracle's gain from made-up runs, worked by hand."""

import math

import polars as pl
import pytest

from pipelines.studies.intervals import clopper_pearson
from pipelines.studies.reclaim.runs import PLACE, share_rows
from pipelines.studies.study import Row
from tests.pipelines.studies.shrinking.tiny import pool

POOL = pool()
AT: Row = {
    "trace": "toy",
    "mix": "gnn",
    "sharing": "pooled",
    "policy": "fifo",
    "variation": "default",
    "rate_per_h": 70.0,
    "z": 1.0,
    "probation_s": 300.0,
}


def runs(finished: dict[str, tuple[float, float]], **place: object) -> list[Row]:
    """Return two runs per arm; the second run of `reclaim` kills three times, two of them the same row."""
    return [
        {
            **AT,
            **place,
            "arm": arm,
            "seed": seed,
            "finished": amount,
            "deployed": amount + 5.0,
            "killed": 3.0 * (arm == "reclaim") * seed,
            "stretch_p99": 1.0 + 0.1 * (arm == "reclaim") * seed,
            "stretched_share": 0.0,
            "gpus_used": 4.0 + seed,
            "killed_rows": [1, 7] if arm == "reclaim" and seed else [],
            "started_rows": list(range(10 + 2 * seed)),
        }
        for arm, amounts in finished.items()
        for seed, amount in enumerate(amounts)
    ]


FOUND = {"requested": (100.0, 110.0), "reclaim": (150.0, 170.0), "oracle": (200.0, 210.0)}


def by_arm(rows: list[Row]) -> dict[object, Row]:
    return {row["arm"]: row for row in rows}


def test_the_share_is_a_ratio_of_mean_gains() -> None:
    found = by_arm(share_rows(pl.DataFrame(runs(FOUND)), POOL))

    assert [found[arm]["share"] for arm in FOUND] == [0.0, pytest.approx(0.55), 1.0]
    reclaim = found["reclaim"]
    half = 12.7062 * 0.05  # Student's t of two seeds, times the standard error of (-0.05, 0.05)
    assert reclaim["share_lo"] == pytest.approx(0.55 - half, abs=1e-4)
    assert reclaim["share_hi"] == pytest.approx(0.55 + half, abs=1e-4)
    assert (reclaim["finished"], reclaim["requested_finished"], reclaim["oracle_finished"]) == (160.0, 105.0, 205.0)
    assert (reclaim["seeds"], reclaim["rows"]) == (2, 40)


def test_kills_sum_over_seeds_and_count_distinct_rows() -> None:
    reclaim = by_arm(share_rows(pl.DataFrame(runs(FOUND)), POOL))["reclaim"]

    assert (reclaim["killed"], reclaim["killed_rows"]) == (3, 2)
    assert reclaim["killed_rows_hi"] == clopper_pearson(2, 12).high
    assert reclaim["stretch_p99"] == pytest.approx(1.05)
    assert reclaim["requested_stretch_p99"] == 1.0


@pytest.mark.parametrize("column", PLACE)
def test_arms_are_compared_within_a_place(column: str) -> None:
    other = {column: 9.0 if isinstance(AT[column], float) else "other"}
    more = {arm: (low + 10.0, high + 10.0) for arm, (low, high) in FOUND.items()} | {"oracle": (300.0, 310.0)}

    rows = share_rows(pl.DataFrame([*runs(FOUND), *runs(more, **other)]), POOL)

    assert [row["share"] for row in rows if row["arm"] == "reclaim"] == [pytest.approx(0.55), pytest.approx(55 / 190)]
    assert {row[column] for row in rows} == {AT[column], other[column]}


def test_there_is_no_share_where_the_oracle_gains_nothing() -> None:
    found = by_arm(share_rows(pl.DataFrame(runs(FOUND | {"oracle": FOUND["requested"]})), POOL))

    assert all(math.isnan(float(str(row["share"]))) for row in found.values())
    assert found["reclaim"]["finished"] == 160.0
