"""Tables by hand: gains beside those claimed, the slowdown model that binds, and the goal."""

import math

import polars as pl
import pytest

from pipelines.studies.compare import Interval
from pipelines.studies.shrinking.paper import experiment_rows, judged
from pipelines.studies.shrinking.runs import (
    bottleneck_rows,
    claim_rows,
    goal_rows,
    level_rows,
)
from tests.pipelines.studies.shrinking.tiny import runs

HAND = {
    "requested": {"deployed": [90.0, 110.0, 100.0], "complete_rate": [0.2, 0.3, 0.25], "cpu_met_h": [1.0, 2.0, 3.0]},
    "shrunk": {"deployed": [114.0, 136.0, 125.0], "complete_rate": [0.3, 0.4, 0.35], "cpu_met_h": [2.0, 2.0, 2.0]},
    "oracle": {"deployed": [140.0, 160.0, 150.0], "complete_rate": [0.4, 0.5, 0.45], "cpu_met_h": [4.0, 4.0, 4.0]},
}
T_2 = 4.302653
"""Student's 0.975 quantile of two degrees of freedom."""


def claims(frame: pl.DataFrame) -> dict[tuple[object, ...], dict[str, object]]:
    return {(row["truth"], row["figure"], row["arm"]): row for row in claim_rows(frame)}


def test_gains_are_relative_beside_the_papers() -> None:
    found = claims(runs(HAND))
    count, share = (found["contention", name, "shrunk"] for name in ("deployed", "completion_rate"))

    assert (count["requested"], count["found"], count["seeds"], count["paper_gain_pct"]) == (100.0, 125.0, 3, 25.3)
    # 114 - 1.25 * 90 = 1.5, 136 - 1.25 * 110 = -1.5, 125 - 125 = 0: a spread of 1.5 over a mean of 100.
    assert count["gain_pct_hi"] == pytest.approx(25.0 + T_2 * 1.5 / math.sqrt(3))
    assert (count["within_third"], share["gain_pct"]) == (True, pytest.approx(40.0))
    assert found["contention", "deployed", "oracle"]["within_third"] is False
    assert [row["of_oracle"] for row in (count, share)] == [pytest.approx(0.5)] * 2


def test_nothing_is_a_share_of_a_gain_that_may_be_none() -> None:
    noisy = {**HAND, "oracle": {**HAND["oracle"], "deployed": [80.0, 130.0, 100.0]}}

    assert math.isnan(float(str(claims(runs(noisy))["contention", "deployed", "shrunk"]["of_oracle"])))


def test_levels_and_the_hour_of_the_full_cpu_are_means_with_intervals() -> None:
    levels = {row["arm"]: row for row in level_rows(runs(HAND), ["deployed", "absent"])}
    hours = {row["arm"]: row for row in bottleneck_rows(runs(HAND))}

    assert levels["requested"]["deployed_hi"] == pytest.approx(100.0 + T_2 * 10.0 / math.sqrt(3))
    assert "absent" not in levels["requested"]
    assert (hours["requested"]["cpu_met_h"], hours["requested"]["paper_h"]) == (2.0, 2.0)
    assert (hours["shrunk"]["cpu_met_h"], hours["shrunk"]["paper_h"]) == (2.0, None)


REST = {name: [0.0, 0.0] for name in ("stretched_share", "stretch_mean", "wait_mean_s", "killed_gpu_h")}
HELD = {"cpu_allocated_frac": [0.9, 0.7], "mem_allocated_frac": [0.2, 0.2], "gpu_allocated_frac": [0.6, 0.8]}


def figures(completed: list[float], killed: list[float], stretch: list[float]) -> dict[str, list[float]]:
    return {"completed": completed, "killed": killed, "stretch_p99": stretch, **REST, **HELD}


BASE = figures([100.0, 120.0], [0.0, 0.0], [1.0, 1.0])
BEST = figures([200.0, 220.0], [0.0, 0.0], [1.0, 1.0])


@pytest.mark.parametrize(
    ("arm", "met"),
    [
        (figures([150.0, 170.0], [0.0, 0.0], [1.02, 1.08]), [True, True, True]),
        (figures([149.0, 169.0], [0.0, 1.0], [1.05, 1.06]), [False, False, False]),
    ],
)
def test_each_demand_of_the_goal_is_met_or_not_under_contention(arm: dict[str, list[float]], met: list[bool]) -> None:
    by_arm = {"requested": BASE, "shrunk": arm, "oracle": BEST}
    share, kills, stretch = goal_rows(runs(by_arm), "shrunk")

    assert [row["met"] for row in (share, kills, stretch)] == met
    assert share["found"] == pytest.approx((sum(arm["completed"]) / 2 - 110.0) / 100.0)
    assert (kills["found"], stretch["found"]) == (sum(arm["killed"]), pytest.approx(sum(arm["stretch_p99"]) / 2))
    assert goal_rows(runs(by_arm, truth="unchanged"), "shrunk") == []


@pytest.mark.parametrize(
    ("ends", "verdict"),
    [
        ([(1.0, 3.0), (0.5, 2.0)], "holds"),
        ([(-1.0, 3.0), (-2.0, -0.5)], "fails"),
        ([(1.0, 3.0), (-1.0, 3.0)], "not told apart"),
        ([(1.0, 3.0), (0.0, 0.0)], "not told apart"),
        ([], "not told apart"),
    ],
)
def test_a_claim_holds_only_where_every_interval_shows_it(ends: list[tuple[float, float]], verdict: str) -> None:
    assert judged([Interval(value=(low + high) / 2.0, low=low, high=high) for low, high in ends]) == verdict


def test_experiments_judge_the_first_mix_against_the_others_and_every_policy_by_itself() -> None:
    def gaining(gain: float) -> pl.DataFrame:
        base = [100.0, 110.0, 90.0]
        more = [each * (1.0 + gain) for each in base]
        figures = {"requested": base, "fit": more}
        return runs({arm: {"completed": each, "killed": [0.0] * 3} for arm, each in figures.items()})

    by = {"a": gaining(0.2), "b": gaining(0.3)}

    assert {row["verdict"] for row in experiment_rows(by, "mix", "")} == {"fails"}
    assert {row["verdict"] for row in experiment_rows(by, "policy", "")} == {"holds"}
    assert [row["completed_pct"] for row in experiment_rows(by, "mix", "")][:2] == [*map(pytest.approx, (20.0, 30.0))]
