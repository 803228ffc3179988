"""Arms: what each way of sizing gives, what they share, and which predictor answers for a job of which fold."""

import math
from dataclasses import replace

import numpy as np
import pytest

from pipelines.simulation.advice import ORACLE, REQUESTED, SHRUNK, UNGUARDED, ConstantPredictor
from pipelines.studies.shrinking.arms import ABLATION_ARMS, EXPERIMENT_ARMS, Asked, advice_of, asked_of
from pipelines.studies.shrinking.crossfit import FoldedPredictor
from scheduler_core.shrink import ShrinkPolicy
from scheduler_core.types import FloatArray, Knowledge, Predictor, Recommendation, Request, RunTimes
from tests.pipelines.studies.shrinking.tiny import PREDICTOR, pool

HALF = ShrinkPolicy(alpha0=0.5, sure_runs=math.inf)


def asked(predictor: Predictor = PREDICTOR, **policy: float) -> Asked:
    return asked_of(pool(), predictor, replace(HALF, **policy))  # type: ignore[arg-type]  # numbers only


def targets(answers: list[Recommendation]) -> FloatArray:
    return np.array([answer.target.row() for answer in answers])


ADVICE = advice_of(asked(), ABLATION_ARMS)
REQUESTS = targets(ADVICE[REQUESTED])


@pytest.mark.parametrize("arm", [REQUESTED, *ABLATION_ARMS])
def test_every_arm_advises_every_job_and_never_above_its_request(arm: str) -> None:
    answers = ADVICE[arm]

    assert [answer.job_id for answer in answers] == [entry.job.job_id for entry in pool().jobs]
    assert (targets(answers) <= REQUESTS * (1 + 1e-9)).all()
    assert (targets(answers) > 0.0).all()
    assert {answer.note for answer in answers} == {""}


def test_the_arms_of_the_experiments_are_among_those_of_the_ablation() -> None:
    for name, arm in EXPERIMENT_ARMS.items():
        assert ABLATION_ARMS[name].give is arm.give


def test_floors_hold_where_they_are_asked_and_nowhere_else() -> None:
    # The predictor says 2 cores and 4 GiB, with a margin of 15 % on memory, of requests of 6 cores and 29.3 GiB.
    floor = [2.0, 4.0 * 1.15]

    deep = advice_of(asked(alpha0=0.05), ABLATION_ARMS)
    np.testing.assert_allclose(targets(deep["floors_only"])[:, :2], np.broadcast_to(floor, (40, 2)))
    high = replace(PREDICTOR, peak=Request(cpu_cores=5.0, mem_gib=4.0, gpus=0.1))
    given = advice_of(asked(high), ABLATION_ARMS)
    for arm in ("floors_only", "importance_held", SHRUNK):
        np.testing.assert_allclose(targets(given[arm])[:, 0], 5.0)
    np.testing.assert_allclose(targets(given[UNGUARDED])[:, 0], 3.0)


def test_importance_holds_a_request_only_where_it_is_listened_to() -> None:
    known = Knowledge(important=frozenset({"cpu_cores"}), support={"mem_gib": (1.0, 30.0)})

    given = advice_of(asked(replace(PREDICTOR, known=known)), ABLATION_ARMS)

    for arm in (UNGUARDED, "importance_held", SHRUNK):
        np.testing.assert_allclose(targets(given[arm])[:, 0], 6.0)
    np.testing.assert_allclose(targets(given["floors_only"])[:, 0], 3.0)


def test_importance_yields_to_enough_measured_runs_unless_it_is_held() -> None:
    known = Knowledge(important=frozenset({"cpu_cores"}), support={"mem_gib": (1.0, 30.0)})

    given = advice_of(asked(replace(PREDICTOR, known=known), sure_runs=10), ABLATION_ARMS)

    np.testing.assert_allclose(targets(given[SHRUNK])[:, 0], 3.0)
    np.testing.assert_allclose(targets(given["importance_held"])[:, 0], 6.0)


def test_a_deep_policy_does_not_deepen_what_no_floor_holds() -> None:
    deep = advice_of(asked(alpha0=0.05), ABLATION_ARMS)

    np.testing.assert_array_equal(targets(deep[UNGUARDED]), targets(ADVICE[UNGUARDED]))
    assert (targets(deep[SHRUNK])[:, 0] < targets(ADVICE[SHRUNK])[:, 0]).all()


def test_the_oracle_gives_what_was_used() -> None:
    used = np.array([entry.measured.cpu_cores for entry in pool().jobs])

    np.testing.assert_allclose(targets(ADVICE[ORACLE])[:, 0], used, rtol=1e-9)


def test_every_arm_carries_the_run_time_predicted_at_the_request() -> None:
    class Faster(ConstantPredictor):
        def run_times(self, jobs: object, rows: object, requests: FloatArray) -> object:  # type: ignore[override]  # a toy
            answer = super().run_times(jobs, rows, requests)  # type: ignore[arg-type]  # as above
            return replace(answer, p50=100.0 * requests[:, 0], p90=100.0 * requests[:, 0])

    faster = Faster(run_s=1.0, peak=PREDICTOR.peak, runs=10)
    given = advice_of(asked(faster), EXPERIMENT_ARMS)

    for answers in given.values():
        assert {answer.run_time_p50_s for answer in answers} == {600.0}


def test_a_percentile_rule_sizes_by_the_past_alone() -> None:
    jobs = pool().frame
    first = jobs.with_row_index("row").group_by("group", maintain_order=True).first()["row"].to_list()

    vpa = targets(ADVICE["vpa"])

    # Nothing had ended before the first of each group.
    np.testing.assert_array_equal(vpa[first], REQUESTS[first])
    assert (vpa[:, 0] < REQUESTS[:, 0]).any()


def test_each_job_is_answered_by_its_own_fold() -> None:
    jobs = [entry.job for entry in pool().jobs]
    known = [Knowledge(important=frozenset(names)) for names in ((), ("gpus",), ("gpus", "mem_gib"))]
    folds = [replace(PREDICTOR, run_s=1.0 + at, runs=1 + at, known=each) for at, each in enumerate(known)]
    folded = FoldedPredictor(folds=folds, fold_of={job: at % 3 for at, job in enumerate(jobs)})
    rows = np.array([5, 0, 5, 7, 1])

    times = folded.run_times(jobs, rows, np.ones((5, 3)))

    assert times.p50.tolist() == [3.0, 1.0, 3.0, 2.0, 2.0]
    assert times.p90.tolist() == times.p50.tolist()
    assert folded.peak_use(jobs[3:6]).runs.tolist() == [1, 2, 3]
    assert [len(each.important) for each in folded.knowledge(jobs[:3])] == [0, 1, 2]


def test_a_fold_is_asked_about_the_very_jobs_of_its_rows() -> None:
    class ByJob(ConstantPredictor):
        def run_times(self, jobs: object, rows: object, requests: FloatArray) -> RunTimes:  # type: ignore[override]  # a toy
            numbers = np.array([float(jobs[row].job_id[1:]) for row in rows])  # type: ignore[attr-defined, index]  # as above
            return RunTimes(p50=numbers + requests[:, 0], p90=numbers)

    jobs = [entry.job for entry in pool().jobs]
    by_job = ByJob(run_s=1.0, peak=PREDICTOR.peak)
    folded = FoldedPredictor(folds=[by_job] * 3, fold_of={job: at % 3 for at, job in enumerate(jobs)})
    rows = np.array([9, 0, 3, 7, 31])

    times = folded.run_times(jobs, rows, np.full((5, 3), 0.5))

    assert times.p90.tolist() == [float(jobs[row].job_id[1:]) for row in rows]
    assert (times.p50 - times.p90).tolist() == [0.5] * 5
