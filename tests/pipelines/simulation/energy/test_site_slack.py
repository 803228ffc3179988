"""Slack: jobs wait for a cleaner hour within bounds, without seeing ahead, and are measured from their submission."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pipelines.simulation.energy.site import as_submitted, held_back
from pipelines.simulation.measures.metrics import summarise
from scheduler_core.errors import BadInput
from scheduler_core.planning.hourly import HOUR_S
from scheduler_core.planning.release import Slack, released_s
from tests.pipelines.simulation.energy.sites import hourly
from tests.pipelines.simulation.engine.simulations import gpu_machines, run, workload

DAY = [300.0] * 10 + [100.0] * 4 + [400.0] * 10


def one(
    arrive_h: float, slack_h: float, run_h: float, days: list[float] = DAY * 4, *, clairvoyant: bool = False
) -> float:
    series = hourly(days, wrap=True)
    times = (np.array([each * HOUR_S]) for each in (arrive_h, slack_h, run_h))
    found = released_s(*times, series, 0.0, clairvoyant=clairvoyant)
    return float(found[0]) / HOUR_S


@pytest.mark.parametrize(
    ("arrive_h", "slack_h", "run_h", "released_h"),
    [
        (32.25, 6.0, 1.0, 34.0),  # the clean hours begin at 34
        (32.25, 1.7, 1.0, 32.25),  # too far off
        (32.25, 1.75, 1.0, 34.0),  # just within
        (35.5, 20.0, 1.0, 35.5),  # clean already
        (39.0, 6.0, 1.0, 48.0 - 9.0),  # 400 now, and 400 until 48 where 300 begins: not within 6 h
        (39.0, 9.0, 1.0, 48.0),
        (32.0, 6.0, 4.0, 34.0),
        (32.0, 12.0, 8.0, 32.0),  # two of 300 before are better than those of 400 after
        (32.0, 12.0, 24.0, 32.0),  # a whole day is the same from anywhere
        (30.0, 24.0, 30.0, 32.0),  # 24 h cost the same from anywhere; of the 6 h beyond, four are clean and two of 300
        (38.0, 36.0, 4.0, 58.0),  # the next clean hours lie 20 h off
        (32.25, 6.0, math.nan, 34.0),  # an unknown run counts an hour
    ],
)
def test_a_job_waits_for_the_cleanest_run_within_its_slack(
    arrive_h: float, slack_h: float, run_h: float, released_h: float
) -> None:
    assert one(arrive_h, slack_h, run_h) == pytest.approx(released_h)


@pytest.mark.parametrize("clairvoyant", [False, True])
def test_a_run_without_end_is_released_too(clairvoyant: bool) -> None:
    assert 32.25 <= one(32.25, 6.0, math.inf, clairvoyant=clairvoyant) <= 38.25


def test_the_clairvoyant_sees_what_no_forecast_does() -> None:
    odd = DAY * 2 + [300.0] * 24 + DAY

    assert one(56.5, 6.0, 1.0, odd) == 58.0
    assert one(56.5, 6.0, 1.0, odd, clairvoyant=True) == 56.5


@given(seed=st.integers(0, 500), clairvoyant=st.booleans())
def test_nobody_waits_beyond_the_slack_and_the_clairvoyant_is_never_worse(seed: int, clairvoyant: bool) -> None:
    rng = np.random.default_rng(seed)
    series = hourly(rng.uniform(-50.0, 500.0, 24 * 20), wrap=True)
    arrive_s, slack_s = rng.uniform(0, 8e5, 30), rng.uniform(0, 4e4, 30) * rng.integers(0, 2, 30)
    run_s = rng.uniform(1.0, 2e5, 30)

    found = released_s(arrive_s, slack_s, run_s, series, 0.0, clairvoyant=clairvoyant)

    assert ((found >= arrive_s) & (found <= arrive_s + slack_s + 1e-6)).all()
    best = released_s(arrive_s, slack_s, run_s, series, 0.0, clairvoyant=True)
    assert (series.integral(best, best + run_s) <= series.integral(found, found + run_s) + 1e-6).all()
    assert (series.integral(best, best + run_s) <= series.integral(arrive_s, arrive_s + run_s) + 1e-6).all()


@given(seed=st.integers(0, 200))
def test_truncating_the_future_changes_no_release(seed: int) -> None:
    rng = np.random.default_rng(seed)
    series = hourly(rng.uniform(0.0, 500.0, 24 * 10))
    now_s = float(rng.uniform(0.0, 24 * 9 * HOUR_S))
    asked = (np.array([now_s]), np.array([rng.uniform(0.0, 3e5)]), np.array([rng.uniform(1.0, 3e5)]))
    known = series.truncated((now_s // HOUR_S + 1) * HOUR_S)

    assert released_s(*asked, known, 0.0).tolist() == released_s(*asked, series, 0.0).tolist()


def test_slack_is_hours_or_a_part_of_the_predicted_run() -> None:
    predicted_s = np.array([100.0, math.nan, 1e9])

    assert Slack(longest_s=60.0).of(predicted_s).tolist() == [60.0] * 3
    assert Slack(run_frac=0.5).of(predicted_s).tolist() == [50.0, 0.0, 7 * 24 * HOUR_S]


@pytest.mark.parametrize(
    "fields",
    [
        {},
        {"longest_s": 1.0, "run_frac": 1.0},
        {"longest_s": -1.0},
        {"run_frac": math.inf},
        {"longest_s": 1e7},
        {"run_frac": 100.1},
    ],
)
def test_what_is_no_slack_is_refused(fields: dict[str, float]) -> None:
    with pytest.raises(BadInput, match="slack"):
        Slack(**fields)


def test_a_held_job_is_measured_from_its_submission() -> None:
    jobs = workload({"at": 0.0, "gpus": 1, "run": 100.0}, {"at": 10.0, "gpus": 1, "run": 50.0}, {"at": 20.0, "gpus": 9})
    held, order = held_back(jobs, np.array([200.0, 10.0, 20.0]))

    ran = as_submitted(run(held, gpu_machines(1)), jobs.arrive_s, order)

    assert held.arrive_s.tolist() == [10.0, 20.0, 200.0]
    assert ran.job.tolist() == [1, 0]
    assert ran.finished_s[:2].tolist() == [300.0, 60.0]
    assert ran.never_fits.tolist() == [False, False, True]
    assert ran.workload.run_s.tolist() == jobs.run_s.tolist()
    assert summarise(ran).jct_mean_s == pytest.approx((300.0 + 50.0) / 2)
    assert summarise(ran).wait_mean_s == pytest.approx(100.0)
