"""Claims beside what was found, by hand: gains relative and in points, shares of the oracle's, where the paper lies."""

import math

import polars as pl
import pytest

from pipelines.studies.shrinking.claims import bottleneck_rows, claim_rows, level_rows
from tests.pipelines.studies.shrinking.tiny import runs

HAND = {
    "requested": {"deployed": [90.0, 110.0, 100.0], "complete_rate": [0.2, 0.3, 0.25], "cpu_met_h": [1.0, 2.0, 3.0]},
    "shrunk": {"deployed": [114.0, 136.0, 125.0], "complete_rate": [0.3, 0.4, 0.35], "cpu_met_h": [2.0, 2.0, 2.0]},
    "oracle": {"deployed": [140.0, 160.0, 150.0], "complete_rate": [0.4, 0.5, 0.45], "cpu_met_h": [4.0, 4.0, 4.0]},
}
T_2 = 4.302653
"""Student's 0.975 quantile of two degrees of freedom."""


def claims(*figures: str) -> dict[tuple[object, object], dict[str, object]]:
    return {(row["figure"], row["arm"]): row for row in claim_rows(runs(HAND), figures)}


def test_a_count_gains_relative_and_has_no_points() -> None:
    row = claims("deployed")["deployed", "shrunk"]

    assert (row["requested"], row["found"], row["seeds"]) == (100.0, 125.0, 3)
    assert row["gain_pct"] == pytest.approx(25.0)
    # 114 - 1.25 * 90 = 1.5, 136 - 1.25 * 110 = -1.5, 125 - 125 = 0: a spread of 1.5 over a mean of 100.
    assert row["gain_pct_hi"] == pytest.approx(25.0 + T_2 * 1.5 / math.sqrt(3))
    assert math.isnan(float(str(row["gain_points"])))
    assert row["paper_gain_pct"] == 25.3
    assert (row["relative"], row["points"]) == ("within", None)


def test_a_share_gains_in_points_too() -> None:
    row = claims("completion_rate")["completion_rate", "shrunk"]

    assert row["gain_pct"] == pytest.approx(40.0)
    assert (row["gain_points"], row["gain_points_lo"]) == (pytest.approx(10.0), pytest.approx(10.0))
    assert row["points"] == "below"


def test_half_of_the_oracles_gain_is_half() -> None:
    found = claims("deployed", "completion_rate")

    assert found["deployed", "shrunk"]["of_oracle"] == pytest.approx(0.5)
    assert found["completion_rate", "shrunk"]["of_oracle"] == pytest.approx(0.5)
    assert found["deployed", "oracle"]["of_oracle"] == pytest.approx(1.0)
    # The oracle's +50 % is told from 25.3 %, with no spread at all.
    assert found["deployed", "oracle"]["relative"] == "above"


def test_nothing_is_a_share_of_a_gain_that_may_be_none() -> None:
    noisy = {**HAND, "oracle": {**HAND["oracle"], "deployed": [80.0, 130.0, 100.0]}}

    row = next(row for row in claim_rows(runs(noisy), ("deployed",)) if row["arm"] == "shrunk")

    assert math.isnan(float(str(row["of_oracle"])))


def test_every_truth_and_population_is_compared_with_its_own_baseline() -> None:
    other = {arm: {name: [2.0 * v for v in values] for name, values in own.items()} for arm, own in HAND.items()}
    both = pl.concat([runs(HAND), runs(other, truth="unchanged", gnn="without")])

    rows = claim_rows(both, ("deployed",))

    assert [(row["truth"], row["arm"], row["requested"]) for row in rows] == [
        ("contention", "shrunk", 100.0),
        ("contention", "oracle", 100.0),
        ("unchanged", "shrunk", 200.0),
        ("unchanged", "oracle", 200.0),
    ]


def test_the_order_of_the_runs_changes_nothing() -> None:
    shuffled = runs(HAND).sample(fraction=1.0, shuffle=True, seed=3)

    mine, theirs = (
        sorted(claim_rows(frame, ("deployed",)), key=lambda row: str(row["arm"])) for frame in (runs(HAND), shuffled)
    )

    assert [row["gain_pct_hi"] for row in mine] == [row["gain_pct_hi"] for row in theirs]


def test_the_cpu_bottleneck_of_the_baseline_stands_beside_the_papers() -> None:
    rows = {row["arm"]: row for row in bottleneck_rows(runs(HAND))}

    assert (rows["requested"]["cpu_met_h"], rows["requested"]["paper_h"]) == (2.0, 2.0)
    assert (rows["shrunk"]["cpu_met_h"], rows["shrunk"]["paper_h"]) == (2.0, None)


def test_levels_are_means_with_intervals() -> None:
    rows = {row["arm"]: row for row in level_rows(runs(HAND), ["deployed", "absent"])}

    assert rows["requested"]["deployed"] == 100.0
    assert rows["requested"]["deployed_hi"] == pytest.approx(100.0 + T_2 * 10.0 / math.sqrt(3))
    assert "absent" not in rows["requested"]
