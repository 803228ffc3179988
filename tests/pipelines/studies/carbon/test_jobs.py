"""Drawn jobs: as large and as many as asked, splitting their batch as measured, alike under one seed."""

from pathlib import Path

import numpy as np
import polars as pl
import pytest

from pipelines.errors import SourceError
from pipelines.studies.carbon.jobs import MOST_GPUS, SIZES, Measured, drawn, elastic
from tests.pipelines.studies.energy.made_up import MHZ, WORKLOADS


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
    assert len({tuple(row) for row in jobs.watts}) == len(WORKLOADS)


def test_a_planner_is_told_the_fitted_models(measured: Measured) -> None:
    jobs = drawn(measured, np.random.default_rng(2), jobs=20, jobs_per_h=20.0)

    assert jobs.modelled_perf == pytest.approx(jobs.perf, rel=1e-3)
    assert jobs.modelled_watts == pytest.approx(jobs.watts, rel=1e-3)
    assert not np.array_equal(jobs.modelled_watts, jobs.watts)


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


def test_told_run_times_are_at_the_request_and_the_highest_frequency(measured: Measured) -> None:
    jobs = elastic(
        measured,
        np.random.default_rng(6),
        submit_s=np.array([0.0, 1.0]),
        requested=np.array([1, 4]),
        run_s=np.array([100.0, 200.0]),
        told_s=np.array([50.0, 400.0]),
        rigid=[True, False],
    )

    speed = jobs.steps_per_s[[0, 1], [1, 4]]
    assert jobs.steps / speed == pytest.approx([100.0, 200.0])
    assert jobs.predicted_steps / speed == pytest.approx([50.0, 400.0])
    assert jobs.elastic.tolist() == [False, True]


def test_a_table_without_the_cluster_is_refused(made_up: Path) -> None:
    path = made_up / "throughput/step_time_by_gpu_count.csv"
    path.write_text(path.read_text().replace("dgx-ext", "elsewhere"))

    with pytest.raises(SourceError, match="no rows of dgx-ext"):
        Measured.of(made_up)


@pytest.mark.slow
def test_real_tables_give_jobs_that_scale_less_than_in_proportion(energy: Path) -> None:
    jobs = drawn(Measured.of(energy), np.random.default_rng(7), jobs=100, jobs_per_h=20.0)

    frame = pl.DataFrame({"one": jobs.steps_per_s[:, 1], "eight": jobs.steps_per_s[:, 8]}).drop_nans()
    assert len(frame) > 10
    assert ((frame["eight"] / frame["one"]) < 8.0).all()
