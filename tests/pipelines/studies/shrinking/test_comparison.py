"""The slowdown model that binds a figure, by hand, and the three verdicts on a claim."""

import polars as pl
import pytest

from pipelines.studies.intervals import Interval
from pipelines.studies.shrinking.claims import claim_rows
from pipelines.studies.shrinking.comparison import binding_truths, judged
from tests.pipelines.studies.shrinking.tiny import runs

BASE = [100.0, 110.0, 90.0]

SURE = {10: [10.0, 11.0, 9.0], 20: [20.0, 22.0, 18.0], -10: [-10.0, -11.0, -9.0]}
"""By gain in percent of `BASE`, what is gained in each seed: exactly as much everywhere."""


def varied(gains: dict[str, list[float]]) -> pl.DataFrame:
    """Return runs in which `shrunk` gains so much under each slowdown model."""
    return pl.concat(
        runs(
            {"requested": {"deployed": BASE}, "shrunk": {"deployed": [b + g for b, g in zip(BASE, own, strict=True)]}},
            truth=truth,
        )
        for truth, own in gains.items()
    )


def truths(**gains: list[float]) -> list[dict[str, object]]:
    found = varied(gains)
    return binding_truths(found, claim_rows(found, ["deployed"]))


def test_the_truth_that_leaves_least_binds() -> None:
    rows = truths(unchanged=SURE[20], predicted=SURE[10], contention=SURE[-10])

    assert [row["binding_truth"] for row in rows] == ["contention"] * 3
    assert [row["beside_unchanged_pct"] for row in rows] == [pytest.approx(each) for each in (0.0, -10.0, -30.0)]


@pytest.mark.parametrize("contention", [SURE[20], [100.0, 10.0, -70.0]])
def test_no_truth_binds_that_is_not_told_apart_from_the_mildest(contention: list[float]) -> None:
    rows = truths(unchanged=SURE[20], contention=contention)

    assert {row["binding_truth"] for row in rows} == {"none"}


def test_what_should_fall_is_bound_where_it_falls_least() -> None:
    figures = {
        "unchanged": {"requested": 100.0, "shrunk": 70.0},
        "contention": {"requested": 100.0, "shrunk": 90.0},
    }
    found = pl.concat(
        runs({arm: {"cpu_request_cores": [cores] * 3} for arm, cores in asked.items()}, truth=truth)
        for truth, asked in figures.items()
    )

    rows = binding_truths(found, claim_rows(found, ["cpu_request"]))

    assert {row["binding_truth"] for row in rows} == {"contention"}
    assert rows[1]["beside_unchanged_pct"] == pytest.approx(20.0)


@pytest.mark.parametrize(
    ("ends", "verdict"),
    [
        ([(1.0, 3.0), (0.5, 2.0)], "holds"),
        ([(1.0, 3.0), (-2.0, -0.5)], "fails"),
        ([(1.0, 3.0), (-1.0, 3.0)], "not told apart"),
        ([(-1.0, 3.0), (-2.0, -0.5)], "fails"),
        ([(1.0, 3.0), (0.0, 0.0)], "not told apart"),
        ([], "not told apart"),
    ],
)
def test_a_claim_holds_only_where_every_interval_shows_it(ends: list[tuple[float, float]], verdict: str) -> None:
    assert judged([Interval(value=(low + high) / 2.0, low=low, high=high) for low, high in ends]).value == verdict
