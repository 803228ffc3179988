"""Drawn arrivals: their times, and the mix of types."""

import numpy as np
import pytest

from pipelines.simulation.engine.workload import Draws, poisson_draws
from scheduler_core.errors import BadInput

KINDS = ["ctr"] * 6 + ["nlp"] * 2 + ["cv"]


def drawn(seed: int = 3, rate_per_h: float = 1000.0, **fields: object) -> Draws:
    rng = np.random.default_rng(seed)
    return poisson_draws(KINDS, rate_per_h=rate_per_h, horizon_s=36_000.0, rng=rng, **fields)  # type: ignore[arg-type]


def test_times_are_poisson_over_the_horizon() -> None:
    times = drawn().at_s
    gaps = np.diff(times)

    # 10 000 expected: five standard deviations are 500
    assert len(times) == pytest.approx(10_000, abs=500)
    assert times[0] >= 0.0
    assert times[-1] < 36_000.0
    assert (gaps >= 0.0).all()
    assert gaps.std() == pytest.approx(gaps.mean(), rel=0.05)


def test_same_seed_same_arrivals_and_another_seed_others() -> None:
    first, again, other = drawn(seed=3), drawn(seed=3), drawn(seed=4)

    assert (first.at_s.tobytes(), first.picks.tobytes()) == (again.at_s.tobytes(), again.picks.tobytes())
    assert first.at_s.tobytes() != other.at_s.tobytes()


@pytest.mark.parametrize(
    ("mix", "share_of_cv"),
    [(None, 1 / 9), ({"cv": 30.0, "ctr": 70.0}, 0.3), ({"cv": 1.0}, 1.0), ({"nlp": 1.0, "cv": 0.0}, 0.0)],
)
def test_mix_weighs_the_types(mix: dict[str, float] | None, share_of_cv: float) -> None:
    kinds = [KINDS[pick] for pick in drawn(mix=mix).picks]

    assert kinds.count("cv") / len(kinds) == pytest.approx(share_of_cv, abs=0.025)


def test_within_a_type_every_job_is_as_likely() -> None:
    counts = np.bincount(drawn(mix={"ctr": 1.0}).picks, minlength=len(KINDS))[:6]

    assert max(counts) < 1.2 * min(counts)


@pytest.mark.parametrize("mix", [{"rl": 1.0}, {"cv": 0.0}, {"cv": 2.0, "ctr": -1.0}])
def test_a_mix_the_pool_cannot_serve_is_refused(mix: dict[str, float]) -> None:
    with pytest.raises(BadInput, match="expected weights over types of the pool"):
        drawn(mix=mix)


@pytest.mark.parametrize("rate_per_h", [0.0, -1.0, float("inf"), float("nan")])
def test_a_rate_that_cannot_be_meant_is_refused(rate_per_h: float) -> None:
    with pytest.raises(BadInput, match="positive finite"):
        drawn(rate_per_h=rate_per_h)


def test_an_empty_pool_is_refused() -> None:
    with pytest.raises(BadInput, match="empty job pool"):
        poisson_draws([], rate_per_h=1.0, horizon_s=1.0, rng=np.random.default_rng(0))
