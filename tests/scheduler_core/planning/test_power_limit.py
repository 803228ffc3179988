"""Power-limit models: measured limits as measured, between them a line, beyond them nothing."""

import numpy as np
import pytest

from scheduler_core.errors import BadInput
from scheduler_core.planning.power_limit import fit_power_limit

LIMITS, SECONDS, WATTS = [200.0, 100.0, 150.0], [10.0, 16.0, 11.0], [170.0, 98.0, 140.0]


def test_measured_limits_are_told_as_measured_in_any_order() -> None:
    model = fit_power_limit(LIMITS, SECONDS, WATTS)

    assert model.limits_w == (100.0, 150.0, 200.0)
    assert model.epoch_s(LIMITS) == pytest.approx(SECONDS)
    assert model.watts(LIMITS) == pytest.approx(WATTS)


def test_between_limits_time_and_watts_lie_between_theirs() -> None:
    model = fit_power_limit(LIMITS, SECONDS, WATTS)

    assert model.watts(125.0) == pytest.approx(119.0)
    assert model.epoch_s(np.sqrt(100.0 * 150.0)) == pytest.approx(np.sqrt(16.0 * 11.0))


def test_the_best_limit_takes_least_energy() -> None:
    assert fit_power_limit(LIMITS, SECONDS, WATTS).optimal_limit_w() == 150.0
    assert fit_power_limit([100.0, 200.0], [4.0, 2.0], [50.0, 100.0]).optimal_limit_w() == 100.0


@pytest.mark.parametrize("limit", [99.0, 201.0, np.nan])
def test_beyond_what_was_measured_nothing_is_told(limit: float) -> None:
    model = fit_power_limit(LIMITS, SECONDS, WATTS)

    for told in (model.watts, model.epoch_s):
        with pytest.raises(BadInput, match="expected 100 to 200 W as measured"):
            told(limit)


@pytest.mark.parametrize(
    ("limits", "seconds", "watts", "said"),
    [
        ([], [], [], "at least one"),
        ([100.0], [1.0, 2.0], [90.0], "same length"),
        ([100.0, 100.0], [1.0, 2.0], [90.0, 91.0], "each once"),
        ([100.0], [0.0], [90.0], "seconds down to 0"),
        ([100.0], [1.0], [-1.0], "watts down to -1"),
    ],
)
def test_columns_that_cannot_be_meant_are_refused(
    limits: list[float], seconds: list[float], watts: list[float], said: str
) -> None:
    with pytest.raises(BadInput, match=said):
        fit_power_limit(limits, seconds, watts)
