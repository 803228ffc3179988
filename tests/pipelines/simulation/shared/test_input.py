"""Bad input of a simulation of shared machines, and how the drawn variation keeps the recorded use."""

import re
from dataclasses import replace

import numpy as np
import pytest

from pipelines.simulation.shared.inputs import Reserving
from pipelines.simulation.shared.variation import Variation, clipped_mean, draw, scale_to
from scheduler_core.errors import BadInput
from scheduler_core.queueing import Discipline
from tests.pipelines.simulation.shared.worlds import simulated, world

ONE = world(1, 6, arm="requested", policy="fifo", sharing="pooled", variation="default")


def test_a_load_of_other_jobs_is_refused() -> None:
    with pytest.raises(BadInput, match="load: found"):
        simulated(replace(ONE, load=ONE.load.picked(np.arange(0))))


@pytest.mark.parametrize(
    ("discipline", "said"),
    [
        (Discipline(policy="las"), "found policy las, expected one of fifo, sjf, srtf"),
        (Discipline(placement="fgd"), "found placement fgd, expected best_fit"),
        (Discipline(policy="srtf"), r"found preemption (the default of srtf), expected none (preempt=False)"),
        (Discipline(policy="srtf", preempt=True), "found preemption, expected none"),
        (Discipline(backfill="easy"), "found backfill, expected none"),
        (Discipline(overtakes=1), "found a limit of overtaking, expected none"),
        (Discipline(aging=1.0), "found aging, expected none"),
        (Discipline(match_gpu_type=True), "found matching of GPU types, expected none"),
        (Discipline(placement="spread", aging=1.0), "found placement spread, expected best_fit; found aging, expec"),
    ],
)
def test_disciplines_of_other_engines_are_refused_by_what_is_allowed(discipline: Discipline, said: str) -> None:
    with pytest.raises(BadInput, match=re.escape(f"shared machines: {said}")):
        simulated(replace(ONE, discipline=discipline))


def test_reservations_with_spread_need_a_policy() -> None:
    assert Reserving().z == 0.0


MEANS = np.array([[0.05, 0.3], [0.6, 0.95]])


def test_the_mean_below_the_limit_is_the_recorded_one() -> None:
    """Compare the closed form with the mean of random draws."""
    limit, sigma = np.ones((2, 2)), np.array([[1.0, 0.8], [0.5, 0.3]])
    scale = scale_to(MEANS, limit, sigma)
    rng = np.random.default_rng(2)
    noise = np.exp(sigma * rng.standard_normal((400_000, 2, 2)) - 0.5 * sigma**2)
    assert np.minimum(limit, scale * noise).mean(axis=0) == pytest.approx(MEANS, rel=0.01)
    assert clipped_mean(scale, limit, sigma) == pytest.approx(MEANS, rel=1e-6)


def test_classes_of_variation_are_as_frequent_as_stated() -> None:
    count = 20_000
    mean = np.full((count, 2), 0.5)
    varied = draw(Variation(), mean, np.ones_like(mean), np.full(count, 6000.0), np.zeros(count, dtype=np.bool_), 3)
    # Use of half a request: a third hardly varies, the others around a coefficient of variation of 0.57.
    cv = np.sqrt(np.expm1(varied.sigma**2))
    assert (cv < 0.031).mean() == pytest.approx(1 / 3, abs=0.02)
    assert np.median(cv[cv > 0.031]) == pytest.approx(0.57, rel=0.03)
    early, late = varied.peak_at_s < 600.0, varied.peak_at_s >= 5400.0
    assert early.mean() == pytest.approx(0.6 + 0.15 * 0.1, abs=0.02)
    assert late.mean() == pytest.approx(0.25 + 0.15 * 0.1, abs=0.02)
    assert 1.5 <= 1.0 / varied.before_peak.max() <= 1.0 / varied.before_peak.min() <= 2.2
