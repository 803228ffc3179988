"""Recorded jobs as elastic ones: stretches in a row at the load asked, told what is predicted and running what ran."""

from pathlib import Path

import numpy as np
import polars as pl
import pytest

from pipelines.studies.carbon.arms import BASELINES, TAUT, TWO_STAGES
from pipelines.studies.carbon.jobs import Measured
from pipelines.studies.carbon.recorded import LOAD, Recorded
from pipelines.studies.carbon.runs import Setting, offered

JOBS = 900
USUAL = Setting(name="usual", jobs_per_h=20.0, jobs=400)


@pytest.fixture
def held() -> Recorded:
    rng = np.random.default_rng(0)
    run_s = rng.uniform(60.0, 6000.0, JOBS)
    frame = pl.DataFrame(
        {
            "submit_s": np.sort(rng.uniform(0.0, 1e6, JOBS)),
            "gpus": rng.choice([1, 2, 4, 8, 16], JOBS),
            "run_s": run_s,
            "predicted": 2.0 * run_s,
            "oracle": run_s,
        }
    )
    return Recorded(trace="toy", frame=frame, notes=())


def test_every_seed_takes_a_stretch_under_each_source_of_sizes(made_up: Path, held: Recorded) -> None:
    tasks = held.tasks(Measured.of(made_up), [0, 1], USUAL)

    assert [(task.setting.name, task.seed) for task in tasks] == [
        (f"toy, {told} run times", seed) for told in ("predicted", "oracle") for seed in (0, 1)
    ]
    assert {task.setting.arms for task in tasks} == {(TAUT, TWO_STAGES, *BASELINES)}
    for task in tasks:
        assert task.jobs is not None
        assert offered(task.jobs, task.setting.gpus) == pytest.approx(LOAD)


def test_what_runs_is_the_same_whatever_is_told(made_up: Path, held: Recorded) -> None:
    predicted, oracle = (task.jobs for task in held.tasks(Measured.of(made_up), [4], USUAL))

    assert predicted is not None
    assert oracle is not None
    for name in ("submit_s", "steps", "steps_per_s", "perf", "watts", "requested"):
        assert getattr(predicted, name).tobytes() == getattr(oracle, name).tobytes()
    assert predicted.predicted_steps == pytest.approx(2.0 * predicted.steps)
    assert oracle.predicted_steps == pytest.approx(oracle.steps)


def test_arrivals_keep_their_proportions(made_up: Path, held: Recorded) -> None:
    (jobs,) = (task.jobs for task in held.tasks(Measured.of(made_up), [2], USUAL)[:1])

    assert jobs is not None
    gaps_s = np.diff(jobs.submit_s) / jobs.submit_s[-1]
    found = [
        start
        for start in range(JOBS - len(jobs) + 1)
        for came in [held.frame["submit_s"].to_numpy()[start : start + len(jobs)]]
        if np.allclose(np.diff(came) / (came[-1] - came[0]), gaps_s)
    ]
    assert len(found) == 1
