"""Frequency models: the table they were made of comes back, the best step is the best, and bad tables are refused."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from scheduler_core.errors import BadInput
from scheduler_core.planning.frequency import FrequencyModel, fit_frequency

MHZ = np.array([757.0, 885.0, 1080.0, 1275.0, 1530.0])


def made(a: float = 0.4, p0_w: float = 50.0, c: float = 2e-8) -> FrequencyModel:
    return FrequencyModel(
        steps_mhz=tuple(MHZ.tolist()), reference_mhz=1530.0, a=a, b_mhz=(1.0 - a) * 1530.0, p0_w=p0_w, c_w_per_mhz3=c
    )


@given(st.floats(0.0, 0.99), st.floats(20.0, 150.0), st.floats(1e-9, 1e-7))
def test_a_table_made_by_a_model_gives_the_model_back(a: float, p0_w: float, c: float) -> None:
    truth = made(a, p0_w, c)

    model = fit_frequency(MHZ, truth.perf(MHZ), truth.watts(MHZ))

    assert model.time_ratio(MHZ) == pytest.approx(truth.time_ratio(MHZ))
    assert (model.p0_w, model.c_w_per_mhz3) == pytest.approx((p0_w, c))
    assert model.watts(MHZ) == pytest.approx(truth.watts(MHZ))


def test_rows_in_any_order_make_the_same_model() -> None:
    truth, order = made(), np.array([3, 0, 4, 1, 2])
    noisy = truth.watts(MHZ) * np.array([1.01, 0.99, 1.02, 0.98, 1.0])

    model = fit_frequency(MHZ, truth.perf(MHZ), noisy)
    shuffled = fit_frequency(MHZ[order], truth.perf(MHZ)[order], noisy[order])

    assert shuffled.steps_mhz == model.steps_mhz
    assert (shuffled.a, shuffled.p0_w) == pytest.approx((model.a, model.p0_w))


def test_the_fit_is_best_by_relative_error() -> None:
    truth = made()
    noisy = truth.watts(MHZ) * np.array([1.05, 0.97, 1.02, 0.98, 1.01])
    model = fit_frequency(MHZ, truth.perf(MHZ), noisy)

    def squared(p0_w: float, c: float) -> float:
        return float((((p0_w + c * MHZ**3) / noisy - 1.0) ** 2).sum())

    least = squared(model.p0_w, model.c_w_per_mhz3)
    for by in (0.999, 1.001):
        assert squared(model.p0_w * by, model.c_w_per_mhz3) > least
        assert squared(model.p0_w, model.c_w_per_mhz3 * by) > least


@given(st.floats(0.0, 0.99), st.floats(5.0, 150.0), st.floats(1e-9, 1e-7))
def test_no_step_takes_less_energy_than_the_optimal_one(a: float, p0_w: float, c: float) -> None:
    model = made(a, p0_w, c)

    energy = model.watts(MHZ) / model.perf(MHZ)

    assert energy[list(MHZ).index(model.optimal_mhz())] == energy.min()


def test_work_that_does_not_slow_down_is_best_at_the_lowest_step() -> None:
    assert made(a=1.0).optimal_mhz() == 757.0
    assert made(a=0.0, p0_w=1e6).optimal_mhz() == 1530.0


@pytest.mark.parametrize(
    ("mhz", "perf", "watts", "said"),
    [
        ([1000.0], [1.0], [100.0], "at least 2"),
        ([900.0, 1000.0], [1.0], [100.0, 110.0], "same length"),
        ([900.0, 900.0], [0.9, 1.0], [100.0, 110.0], "each once"),
        ([900.0, 1000.0], [0.9, np.nan], [100.0, 110.0], "speeds 0.9, nan"),
        ([900.0, 1000.0], [0.9, 1.0], [-5.0, 110.0], "watts -5, 110"),
        ([900.0, np.inf], [0.9, 1.0], [100.0, 110.0], "frequencies 900, inf"),
    ],
)
def test_tables_that_cannot_be_meant_are_refused(
    mhz: list[float], perf: list[float], watts: list[float], said: str
) -> None:
    with pytest.raises(BadInput, match=said):
        fit_frequency(mhz, perf, watts)
