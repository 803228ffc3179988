"""Tables and claims of policies by hand: against greedy and the best schedule."""

import math

import polars as pl
import pytest

from pipelines.models.sites.judging import FEASIBLE
from pipelines.studies.sites import findings
from pipelines.studies.study import Findings

UTILITY = {"greedy": (0.5, 0.7), "least_loaded": (0.4, 0.4), "scorer": (0.7, 0.9)}
BEST = {FEASIBLE: (0.9, 1.0)}


def found(utility: dict[str, tuple[float, float]]) -> Findings:
    rows = [
        {"regime": "B-loose", "policy": name, "week": week, "utility": value}
        for name, weeks in utility.items()
        for week, value in enumerate(weeks)
    ]
    tuned = [{"regime": "B-loose", "policy": name, "tuning_usd": 1.0} for name in ("greedy", "scorer")]
    return findings(pl.concat([pl.DataFrame(rows), pl.DataFrame(tuned)], how="diagonal"), "toy", [])


def claims(of: Findings) -> dict[str, float]:
    return {str(row["claim"]).partition(",")[0].partition(" (")[0]: float(str(row["value"])) for row in of.claims}


def test_the_scorer_against_greedy_least_loaded_and_the_best_schedule_by_hand() -> None:
    told = claims(found(UTILITY | BEST))

    assert told["learnt above greedy with forecast"] == pytest.approx(0.2)
    assert told["share of the gap to the best feasible"] == pytest.approx(0.2 / 0.35)
    assert told["gain over least loaded"] == pytest.approx(1.0)


@pytest.mark.parametrize("weeks", [(-0.1, 0.0), (0.1, -0.1)])
def test_there_is_no_relative_gain_over_a_utility_that_is_not_positive(weeks: tuple[float, float]) -> None:
    told = claims(found(UTILITY | BEST | {"least_loaded": weeks}))

    assert math.isnan(told["gain over least loaded"])
