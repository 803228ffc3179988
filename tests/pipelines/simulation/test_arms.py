"""First starts of every arm as columns, checked against the slowdown models, and what newcomers reserve."""

from dataclasses import replace

import numpy as np
import polars as pl
import pytest

from pipelines.simulation.advice import REQUESTED, ConstantPredictor, Sized, advice, oracle_of, scales_of, shared_arms
from pipelines.simulation.engine.slowdown import SLOWDOWN_MODELS
from pipelines.simulation.job_pool import Pool, job_pool, recorded_pool, submissions
from pipelines.simulation.settings import SimulationSettings
from pipelines.simulation.workloads import as_requested, gangs_of, predicted_times, starts_under, uses_of
from scheduler_core.cluster import demand_of
from scheduler_core.errors import PredictorUnavailable
from scheduler_core.reserve import ReservePolicy
from scheduler_core.types import FloatArray, Job, PeakUse, Recommendation, Request
from tests.pipelines.lake.canonical import altered, measured_tables


def predictor() -> ConstantPredictor:
    return ConstantPredictor(run_s=600.0, peak=Request(cpu_cores=0.5, mem_gib=3.0, gpus=0.05), gpu_mem_gib=0.5)


def tight_pool() -> Pool:
    """Return a pool some of whose jobs need more memory, or CPU, than half of what they ask for."""
    jobs, usage = measured_tables()
    third = pl.int_range(pl.len()) % 3
    return job_pool(
        jobs,
        usage.with_columns(
            mem_max_gib=pl.when(third == 0).then(20.0).otherwise("mem_max_gib"),
            used_cpu_cores=pl.when(third == 1).then(5.0).otherwise("used_cpu_cores"),
        ),
    )


def advised(pool: Pool) -> dict[str, list[Recommendation]]:
    return advice(pool, scales_of(predictor(), pool, SimulationSettings(guards=("usage", "none"))))


@pytest.mark.parametrize("truth", list(SLOWDOWN_MODELS))
@pytest.mark.parametrize("arm", ["shrunk", "unguarded", "oracle"])
def test_columns_say_what_the_truth_says_of_every_job(truth: str, arm: str) -> None:
    pool = tight_pool()
    answers = advised(pool)[arm]

    starts = starts_under(truth, pool.jobs, gangs_of(pool.frame), answers)

    for row, (entry, answer) in enumerate(zip(pool.jobs, answers, strict=True)):
        outcome = SLOWDOWN_MODELS[truth](entry.measured, entry.job.request, answer.target, answer)
        assert tuple(starts.granted_units[row]) == demand_of(answer.target, 1).units
        assert (starts.granted_run_s[row], starts.dies[row]) == (outcome.run_s, outcome.killed)
        assert starts.predicted_s[row] == answer.run_time_p50_s


def test_answers_no_model_can_mean_are_unknown() -> None:
    pool = job_pool(*measured_tables(4))
    answers = advised(pool)["shrunk"]
    said = [replace(a, run_time_p50_s=t) for a, t in zip(answers, (5.0, np.inf, -1.0, np.nan), strict=True)]

    assert predicted_times(said).tolist()[0] == 5.0
    assert np.isnan(predicted_times(said)[1:]).all()


def test_use_is_bounded_by_the_request_and_unknown_where_it_was_not_measured() -> None:
    jobs, usage = measured_tables(3)
    usage = altered(usage, 0, used_cpu_cores=99.0).filter(usage["job_id"] != "j001")
    pool = recorded_pool(submissions(jobs).jobs, usage)

    mean = uses_of(pool.frame, gangs_of(pool.frame), pool.measured).mean

    first = pool.jobs[0].measured
    assert mean[0].tolist() == pytest.approx([6000.0, first.mem_avg_gib * 1024, first.gpus * 1000])
    assert np.isnan(mean[1]).all()


def test_jobs_nobody_measured_keep_their_requests_in_every_arm() -> None:
    jobs, usage = measured_tables(6)
    pool = recorded_pool(submissions(jobs).jobs, usage.filter(usage["job_id"] != "j003"))

    for arm, answers in advised(pool).items():
        assert answers[3].target == pool.jobs[3].job.request
        assert arm == REQUESTED or any(answer.target != answer.request for answer in answers)


def test_where_nothing_was_measured_only_predictions_are_left() -> None:
    jobs, usage = measured_tables(3)
    pool = recorded_pool(submissions(jobs).jobs, usage.clear())
    scales = scales_of(oracle_of(pool), pool, SimulationSettings())

    arms = advice(pool, scales)

    assert set(arms) == {REQUESTED}
    assert predicted_times(arms[REQUESTED]).tolist() == [entry.measured.run_s for entry in pool.jobs]
    assert advice(pool, {}) == {}


def test_a_predictor_that_fails_leaves_every_request_standing(monkeypatch: pytest.MonkeyPatch) -> None:
    pool, broken = job_pool(*measured_tables(3)), predictor()

    def away(*_: object) -> PeakUse:
        raise TimeoutError

    monkeypatch.setattr(ConstantPredictor, "peak_use", away)
    answers = advice(pool, scales_of(broken, pool, SimulationSettings()))["shrunk"]

    assert [answer.target for answer in answers] == [entry.job.request for entry in pool.jobs]
    assert {reason for answer in answers for reason in answer.reasons.values()} == {"predictor_unavailable"}


POOL = job_pool(*measured_tables())
GANGS = gangs_of(POOL.frame)
USE = ConstantPredictor(run_s=600.0, peak=Request(cpu_cores=1.0, mem_gib=6.0, gpus=0.1), gpu_mem_gib=2.0)


class Failing(ConstantPredictor):
    def peak_use(self, jobs: list[Job]) -> PeakUse:  # type: ignore[override]
        raise PredictorUnavailable("no model")


def prior_of(predictor: ConstantPredictor) -> FloatArray:
    peak = predictor.peak_use([entry.job for entry in POOL.jobs])
    prior = Sized.newcomers(GANGS, as_requested(GANGS), ReservePolicy(), peak, min_runs=5).reserving.prior
    assert prior is not None
    return prior


def test_a_prior_is_the_predicted_use_and_stays_within_the_request() -> None:
    policy = ReservePolicy()
    prior = prior_of(USE)
    request = GANGS.request_units[:, [0, 2]]

    assert np.array_equal(prior[:, [0, 2]], np.minimum([1000.0, 100.0], request))
    assert np.all(prior[:, [0, 2]] + policy.z * prior[:, [1, 3]] <= request + 1e-9)
    assert (prior[:, [1, 3]] > 0.0).any()


def test_without_enough_runs_the_request_is_reserved() -> None:
    prior = prior_of(replace(USE, runs=2))

    assert np.array_equal(prior[:, [0, 2]], GANGS.request_units[:, [0, 2]])
    assert not prior[:, [1, 3]].any()


def test_arms_need_no_predictor_and_survive_one_that_fails() -> None:
    settings = SimulationSettings()
    failing = Failing(run_s=600.0, peak=Request(cpu_cores=1.0, mem_gib=6.0, gpus=0.1))

    def arms(predictor: ConstantPredictor | None) -> list[str]:
        return list(shared_arms(POOL, GANGS, advice(POOL, scales_of(predictor, POOL, settings)), settings, predictor))

    assert arms(None) == ["requested", "reclaim", "oracle"]
    assert arms(failing) == ["requested", "shrunk", "reclaim", "oracle"]
    assert arms(USE) == ["requested", "shrunk", "reclaim", "reclaim_prior", "oracle"]
