"""Arms: what each way of sizing gives, what they share, and that no model saw the group of a job it predicts."""

import math
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from pipelines.simulation.advice import ORACLE, REQUESTED, SHRUNK, UNGUARDED, ConstantPredictor
from pipelines.studies.shrinking import arms
from pipelines.studies.shrinking.arms import ARMS, FoldedPredictor, Sizing, advice_of, crossfit, sizing
from scheduler_core.shrink import ShrinkPolicy
from scheduler_core.types import FloatArray, Knowledge, Predictor, Recommendation, Request, RunTimes
from tests.pipelines.studies.shrinking.tiny import PREDICTOR, pool, tables

HALF = ShrinkPolicy(alpha0=0.5, sure_runs=math.inf)
IMPORTANT = Knowledge(important=frozenset({"cpu_cores"}), support={"mem_gib": (1.0, 30.0)})


def inputs(predictor: Predictor = PREDICTOR, **policy: float) -> Sizing:
    return sizing(pool(), predictor, replace(HALF, **policy))  # type: ignore[arg-type]  # numbers only


def targets(answers: list[Recommendation]) -> FloatArray:
    return np.array([answer.target.row() for answer in answers])


ADVICE = advice_of(inputs(), ARMS)


@pytest.mark.parametrize("arm", [REQUESTED, *ARMS])
def test_every_arm_sizes_every_job_and_never_above_its_request(arm: str) -> None:
    answers = ADVICE[arm]

    assert [answer.job_id for answer in answers] == [entry.job.job_id for entry in pool().jobs]
    assert (targets(answers) <= targets(ADVICE[REQUESTED]) * (1 + 1e-9)).all()
    assert (targets(answers) > 0.0).all()


def test_floors_and_importance_hold_where_they_apply() -> None:
    # The predictor returns 2 cores; requests are 6 cores.
    high = advice_of(inputs(replace(PREDICTOR, peak=Request(cpu_cores=5.0, mem_gib=4.0, gpus=0.1))), ARMS)
    np.testing.assert_allclose(targets(high[SHRUNK])[:, 0], 5.0)
    np.testing.assert_allclose(targets(high[UNGUARDED])[:, 0], 3.0)

    known = replace(PREDICTOR, known=IMPORTANT)
    held, sure = advice_of(inputs(known), ARMS), advice_of(inputs(known, sure_runs=10), ARMS)
    for arm in (UNGUARDED, SHRUNK):
        np.testing.assert_allclose(targets(held[arm])[:, 0], 6.0)
    np.testing.assert_allclose(targets(sure[SHRUNK])[:, 0], 3.0)


def test_the_oracle_gives_what_was_used() -> None:
    used = np.array([entry.measured.cpu_cores for entry in pool().jobs])

    np.testing.assert_allclose(targets(ADVICE[ORACLE])[:, 0], used, rtol=1e-9)


def test_every_arm_has_the_run_time_predicted_at_the_request() -> None:
    class Faster(ConstantPredictor):
        def run_times(self, jobs: object, rows: object, requests: FloatArray) -> RunTimes:  # type: ignore[override]  # a toy
            return RunTimes(p50=100.0 * requests[:, 0], p90=100.0 * requests[:, 0])

    for answers in advice_of(inputs(Faster(run_s=1.0, peak=PREDICTOR.peak, runs=10)), ARMS).values():
        assert {answer.run_time_p50_s for answer in answers} == {600.0}


def test_each_job_is_predicted_by_its_own_fold() -> None:
    def fold(at: int) -> Any:
        return SimpleNamespace(choice=lambda kind, job: (f"{kind} model of fold {at}", None))

    jobs = [entry.job for entry in pool().jobs]
    folded = FoldedPredictor(folds=[fold(at) for at in range(3)], fold_of={job: at % 3 for at, job in enumerate(jobs)})

    assert [folded.choice("runtime", jobs[at]) for at in (9, 31)] == [
        ("runtime model of fold 0", None),
        ("runtime model of fold 1", None),
    ]
    assert {job.job_id: folded.choice("usage", job)[0] for job in jobs[4:6]} == {
        jobs[4].job_id: "usage model of fold 1",
        jobs[5].job_id: "usage model of fold 2",
    }


def test_no_fold_trains_on_the_groups_that_it_predicts(monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[set[str]] = []
    monkeypatch.setattr(arms, "train_units", lambda _, setting, __: seen.append(set(setting.jobs["group"])))
    monkeypatch.setattr(arms, "models_of", lambda *_: [])

    folded = crossfit(pool(), *tables(), folds=3)

    assert len(seen) == 3
    assert set(folded.fold_of.values()) == {0, 1, 2}
    assert all(job.group not in seen[fold] for job, fold in folded.fold_of.items())
