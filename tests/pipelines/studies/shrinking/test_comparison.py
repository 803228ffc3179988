"""Claims that compare, by hand: three answers of each, and the truth that binds a figure."""

import polars as pl
import pytest

from pipelines.studies.shrinking.claims import claim_rows
from pipelines.studies.shrinking.comparison import binding_truths, gained_in_all, largest_in
from tests.pipelines.studies.shrinking.tiny import runs

BASE = [100.0, 110.0, 90.0]
MOST, OTHER, EVEN = "5:15:15:65", "40:30:20:10", "25:25:25:25"

SURE = {10: [10.0, 11.0, 9.0], 20: [20.0, 22.0, 18.0], -10: [-10.0, -11.0, -9.0]}
"""By gain in percent of `BASE`, what is gained in each seed: exactly as much everywhere."""
NOISY = [60.0, -20.0, -10.0]
"""A tenth gained on average, by one seed alone."""


def varied(across: str, gains: dict[str, list[float]]) -> pl.DataFrame:
    """Return runs in which `shrunk` gains so much at each value of what is varied."""
    return pl.concat(
        runs(
            {"requested": {"deployed": BASE}, "shrunk": {"deployed": [b + g for b, g in zip(BASE, own, strict=True)]}},
            **{across: value},
        )
        for value, own in gains.items()
    )


@pytest.mark.parametrize(
    ("gains", "verdict"),
    [
        ({MOST: SURE[20], OTHER: SURE[10], EVEN: SURE[-10]}, "holds"),
        ({MOST: SURE[10], OTHER: SURE[20], EVEN: SURE[-10]}, "fails"),
        ({MOST: SURE[10], OTHER: SURE[-10], EVEN: SURE[20]}, "fails"),
        # The mean is the largest, but no seeds tell it from the others.
        ({MOST: [70.0, -10.0, 0.0], OTHER: SURE[10], EVEN: SURE[-10]}, "not told apart"),
        # The mean is not the largest, and likewise nothing is told.
        ({MOST: SURE[10], OTHER: [70.0, -10.0, 0.0], EVEN: SURE[-10]}, "not told apart"),
        ({MOST: SURE[10], OTHER: SURE[10], EVEN: SURE[-10]}, "not told apart"),
    ],
)
def test_the_largest_gain_is_so_only_where_the_seeds_tell(gains: dict[str, list[float]], verdict: str) -> None:
    [row] = largest_in(varied("mix", gains), ["deployed"], across="mix", of=MOST, claim="largest")

    assert row["verdict"] == verdict
    assert (row["arm"], row["figure"], row["claim"]) == ("shrunk", "deployed", "largest")
    assert row[f"gain_pct {OTHER}"] == pytest.approx(sum(gains[OTHER]) / 3.0)
    assert row[f"ahead_pct {OTHER}"] == pytest.approx((sum(gains[MOST]) - sum(gains[OTHER])) / 3.0)
    assert f"ahead_pct {MOST}" not in row


def test_a_lead_that_all_seeds_share_is_told_though_the_gains_are_not() -> None:
    lead = [gain + more for gain, more in zip(NOISY, SURE[10], strict=True)]

    [row] = largest_in(varied("mix", {MOST: lead, OTHER: NOISY}), ["deployed"], across="mix", of=MOST, claim="largest")

    assert row["verdict"] == "holds"
    assert float(str(row[f"gain_pct_lo {MOST}"])) < 0.0
    assert (row[f"ahead_pct_lo {OTHER}"], row[f"ahead_pct_hi {OTHER}"]) == (pytest.approx(10.0), pytest.approx(10.0))


@pytest.mark.parametrize(
    ("gains", "verdict"),
    [
        ({"fifo": SURE[10], "srtf": SURE[20]}, "holds"),
        ({"fifo": SURE[10], "srtf": SURE[-10]}, "fails"),
        ({"fifo": SURE[10], "srtf": NOISY}, "not told apart"),
        ({"fifo": SURE[10], "srtf": [0.0, 0.0, 0.0]}, "not told apart"),
        ({"fifo": NOISY, "srtf": SURE[-10]}, "fails"),
    ],
)
def test_a_gain_under_all_policies_is_so_only_where_the_seeds_tell(gains: dict[str, list[float]], verdict: str) -> None:
    [row] = gained_in_all(varied("policy", gains), ["deployed"], across="policy", of="fifo", claim="all")

    assert row["verdict"] == verdict


def truths(**gains: list[float]) -> list[dict[str, object]]:
    found = varied("truth", gains)
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


def test_every_population_and_truth_is_judged_by_itself() -> None:
    held = varied("mix", {MOST: SURE[20], OTHER: SURE[10]})
    failed = varied("mix", {MOST: SURE[10], OTHER: SURE[20]}).with_columns(truth=pl.lit("unchanged"))

    rows = largest_in(pl.concat([held, failed]), ["deployed"], across="mix", of=MOST, claim="largest")

    assert {row["truth"]: row["verdict"] for row in rows} == {"contention": "holds", "unchanged": "fails"}
