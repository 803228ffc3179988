"""Arms that reclaim while jobs run: what newcomers reserve when models predict their use."""

from dataclasses import replace

import numpy as np

from pipelines.simulation.advice import ConstantPredictor, advice, scales_of
from pipelines.simulation.job_pool import job_pool
from pipelines.simulation.reclaiming import Sized, shared_arms
from pipelines.simulation.settings import SimulationSettings
from pipelines.simulation.workloads import as_requested, gangs_of
from scheduler_core.errors import PredictorUnavailable
from scheduler_core.reserve import ReservePolicy
from scheduler_core.types import FloatArray, Job, PeakUse, Request
from tests.pipelines.lake.canonical import measured_tables

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
