"""Speeds fitted to runs of groups: what was put in comes out, and more work is not taken for less speed."""

import numpy as np
import pytest

from scheduler_core.errors import BadInput
from scheduler_core.planning.speeds import fit_speeds


def drawn(elasticities: list[float], *, runs: int = 400, seed: int = 0, bigger: float = 0.0) -> tuple[np.ndarray, ...]:
    """Return runs of groups of very different length; `bigger`: work grows with the GPUs to this power."""
    rng = np.random.default_rng(seed)
    group = np.repeat(np.arange(len(elasticities)), runs)
    gpus, kind = rng.choice([1.0, 2.0, 4.0, 8.0], len(group)), rng.integers(0, 2, len(group))
    work = 600.0 * 10.0**group * gpus**bigger
    speed = gpus ** np.array(elasticities)[group] * np.where(kind == 1, 2.0, 1.0)
    return group, gpus, kind, work / speed * np.exp(rng.normal(0.0, 0.4, len(group)))


def test_elasticity_and_types_are_recovered() -> None:
    model = fit_speeds(*drawn([0.9, 0.5, 0.7]))

    assert model.elasticity == pytest.approx([0.9, 0.5, 0.7], abs=0.06)
    assert model.on_type(1, 0) == pytest.approx(2.0, rel=0.1)
    assert model.with_gpus(0, 2.0) == pytest.approx(2.0**0.9, rel=0.05)


def test_a_group_with_few_runs_leans_on_the_others() -> None:
    group, gpus, kind, run_s = drawn([0.8] * 5 + [0.0], runs=200)
    kept = (group < 5) | (np.arange(len(group)) % 100 == 0)
    few = fit_speeds(group[kept], gpus[kept], kind[kept], run_s[kept])
    many = fit_speeds(group, gpus, kind, run_s)

    assert many.elasticity[5] == pytest.approx(0.0, abs=0.15)
    assert few.elasticity[5] > 0.5


def test_groups_whose_larger_runs_do_more_work_show_no_gain() -> None:
    assert fit_speeds(*drawn([0.8, 0.8], bigger=1.0)).elasticity == pytest.approx(0.0, abs=0.02)


def test_what_is_no_run_is_refused() -> None:
    one = np.array([0])
    with pytest.raises(BadInput, match="positive"):
        fit_speeds(one, np.array([0.0]), one, np.array([60.0]))
    with pytest.raises(BadInput, match="expected as many"):
        fit_speeds(one[:0], np.array([]), one[:0], np.array([]))
