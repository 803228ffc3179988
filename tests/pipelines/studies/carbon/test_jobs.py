"""Drawn jobs: as large and as many as asked, splitting their batch as measured, alike under one seed."""

import tomllib
from pathlib import Path

import numpy as np
import pytest

from pipelines.errors import SourceError
from pipelines.studies.carbon.jobs import FITTED, MOST_GPUS, SIZES, Measured, drawn, step_s
from pipelines.studies.energy import by_frequency
from tests.pipelines.studies.made_up import MHZ, WORKLOADS


@pytest.fixture
def measured(made_up: Path) -> Measured:
    return Measured.of(made_up)


def test_jobs_are_drawn_from_what_was_measured(measured: Measured) -> None:
    jobs = drawn(measured, np.random.default_rng(1), jobs=400, jobs_per_h=20.0)

    gpu_hours = jobs.requested * jobs.steps / jobs.steps_per_s[np.arange(400), jobs.requested] / 3600.0
    assert gpu_hours.min() >= 0.1
    assert gpu_hours.max() <= 1000.0
    assert (gpu_hours < 1.0).mean() == pytest.approx(SIZES[0][0], abs=0.06)
    assert jobs.submit_s[-1] == pytest.approx(400 / 20.0 * 3600.0, rel=0.15)
    assert set(jobs.requested.tolist()) <= {1, 2, 4, 8, 16}
    assert jobs.mhz.tolist() == list(MHZ)
    assert {tuple(row) for row in jobs.watts} == {tuple(row) for row in measured.watts}
    assert len({tuple(row) for row in jobs.modelled_watts}) == len(WORKLOADS)


def test_counts_leave_each_gpu_a_batch_within_those_measured(measured: Measured) -> None:
    jobs = drawn(measured, np.random.default_rng(3), jobs=200, jobs_per_h=20.0)

    rows = np.arange(200)
    assert (jobs.steps_per_s[:, 0] == 0.0).all()
    assert (jobs.steps_per_s[rows, jobs.requested] > 0.0).all()
    for speeds in jobs.steps_per_s:
        known = np.flatnonzero(speeds > 0.0)
        assert (np.diff(known) == 1).all()
        assert known[-1] <= min(MOST_GPUS, 16 * known[0])


def test_the_same_seed_draws_the_same_jobs(measured: Measured) -> None:
    first, again, other = (drawn(measured, np.random.default_rng(seed), jobs=9, jobs_per_h=5.0) for seed in (4, 4, 5))

    assert first.submit_s.tobytes() == again.submit_s.tobytes()
    assert first.steps_per_s.tobytes() == again.steps_per_s.tobytes()
    assert first.submit_s.tobytes() != other.submit_s.tobytes()


def test_a_workload_without_a_model_is_refused(made_up: Path) -> None:
    for name in ("performance", "power"):
        path = made_up / f"gpu_frequency/dataset_{name}.csv"
        path.write_text(path.read_text().replace(WORKLOADS[0], "elsewhere"))

    with pytest.raises(SourceError, match="elsewhere without a model"):
        Measured.of(made_up)


@pytest.mark.parametrize(
    ("gpus", "batch", "seconds"), [(1, 20.0, 0.3), (2, 10.0, 0.3), (8, 10.0, 0.36), (9, 10.0, 0.87)]
)
def test_step_time_by_hand(gpus: int, batch: float, seconds: float) -> None:
    scaling = {"grad_s": 0.1, "grad_s_per_sample": 0.01, "local_s": 0.1, "local_s_per_gpu": 0.01, "gamma": 1.0}
    scaling |= {"remote_s": 0.6, "remote_s_per_gpu": 0.01}

    assert float(step_s(scaling, np.array(gpus), np.array(batch))) == pytest.approx(seconds)


@pytest.mark.slow
def test_the_fitted_models_are_near_the_published_tables_and_scale_less_than_in_proportion(energy: Path) -> None:
    measured, table = Measured.of(energy), by_frequency(energy)
    models = tomllib.loads(FITTED.read_text(encoding="utf-8"))["frequency"]
    a, b_mhz = (np.array([[models[name][field]] for name in table.names]) for field in ("a", "b_mhz"))
    jobs = drawn(measured, np.random.default_rng(7), jobs=100, jobs_per_h=20.0)

    assert measured.perf.shape == (33, 13)
    # The fit is of the step time over that measured at the highest frequency; planners see it over the fit's own there.
    assert np.abs((a + b_mhz / table.mhz) * table.perf - 1.0).mean() < 0.023
    assert (measured.modelled_perf[:, -1] == 1.0).all()
    assert np.abs(measured.modelled_watts / measured.watts - 1.0).mean() < 0.014
    eight = jobs.steps_per_s[:, 8] / jobs.steps_per_s[:, 1]
    assert np.nanmax(eight) < 8.0
