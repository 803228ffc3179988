"""Curves over energy: what is worth having, lines between points, and two curves at equal energy by hand."""

import math

import numpy as np
import pytest

from pipelines.studies.carbon.months import Front, compared, least_mean
from tests.pipelines.studies.carbon.arrivals import arriving


def front(*points: tuple[float, float]) -> Front:
    spent, mean_s = np.array(points, dtype=float).reshape(-1, 2).T
    return Front.of(spent, mean_s)


def test_points_that_another_betters_or_that_are_not_finite_are_left_out() -> None:
    kept = front((4, 5), (1, 10), (2, 11), (3, 5), (math.nan, 1), (0.5, math.nan))

    assert (kept.spent.tolist(), kept.mean_s.tolist()) == ([1.0, 3.0], [10.0, 5.0])


def test_between_points_lie_lines_and_beyond_the_most_nothing_gets_better() -> None:
    curve = front((1, 10), (3, 5))

    assert curve.at(np.array([1.0, 2.0, 3.0, 9.0])).tolist() == [10.0, 7.5, 5.0, 5.0]
    assert np.isnan(curve.at(np.array([0.9]))).all()


def test_a_single_point_is_compared_where_it_lies() -> None:
    found = compared(front((1, 10), (3, 5)), front((2, 15)), front((1, 5)))

    assert found == (2.0, 3.0)


def test_curves_are_compared_from_what_both_can_do_with_to_the_most_of_use_to_the_other() -> None:
    ratio, _ = compared(front((1, 10), (3, 5)), front((2, 15), (4, 5)), front((1, 5)))

    assert 1.0 < ratio < 2.0


@pytest.mark.parametrize("theirs", [front((0.5, 30)), front((math.nan, 1))])
def test_who_takes_less_than_we_can_or_never_ends_is_not_compared(theirs: Front) -> None:
    assert math.isnan(compared(front((1, 10)), theirs, front((0, 1)))[0])


def test_the_bound_of_one_job_by_hand() -> None:
    # On n GPUs as fast as n^0.5 of them: at the low frequency 4500 s / n^0.5 at 100 n W.
    bound = Front.of(*least_mean(arriving([0.0], [3600.0])))

    assert bound.at(np.array([0.125, 0.25])).round().tolist() == [4500.0, 2250.0]
    assert Front.of(*least_mean(arriving([50.0], [3600.0]), round_s=900.0)).at(np.array([0.125])).round() == 5350.0
