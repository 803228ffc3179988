"""The arms: what is reserved first, and priors within requests."""

from dataclasses import replace

import numpy as np
import pytest

from pipelines.simulation.advice import ConstantPredictor
from pipelines.simulation.workloads import gangs_of
from pipelines.studies.reclaim import ARMS, RECLAIM, RECLAIM_PRIOR, sized
from pipelines.studies.shrinking.arms import Sizing, sizing
from scheduler_core.reserve import ReservePolicy
from scheduler_core.shrink import ShrinkPolicy
from scheduler_core.types import FloatArray, Request
from tests.pipelines.studies.shrinking.tiny import PREDICTOR, pool

POOL = pool()
GANGS = gangs_of(POOL.frame)
POLICY = ReservePolicy()
COMPUTE = GANGS.request_units[:, [0, 2]].astype(np.float64)


def inputs(predictor: ConstantPredictor = PREDICTOR) -> Sizing:
    return sizing(POOL, predictor, ShrinkPolicy())


@pytest.mark.parametrize("arm", list(ARMS))
def test_no_arm_starts_a_job_with_more_than_its_request(arm: str) -> None:
    found = sized(arm, inputs(), GANGS, POLICY)

    assert (found.starts.granted_units <= GANGS.request_units).all()
    assert (found.starts.predicted_s == PREDICTOR.run_s).all()
    assert not found.starts.dies.any()


def test_fixed_arms_measure_nothing_and_others_keep_the_request_at_first() -> None:
    for arm in ARMS:
        found = sized(arm, inputs(), GANGS, POLICY)
        if found.reserving.policy is not None:
            assert (found.starts.granted_units == GANGS.request_units).all(), arm
    assert sized(RECLAIM, inputs(), GANGS, POLICY).reserving.policy == POLICY
    assert [arm for arm in ARMS if sized(arm, inputs(), GANGS, POLICY).reserving.policy] == [RECLAIM, RECLAIM_PRIOR]


def prior(predictor: ConstantPredictor, policy: ReservePolicy = POLICY) -> FloatArray:
    found = sized(RECLAIM_PRIOR, inputs(predictor), GANGS, policy).reserving.prior
    assert found is not None
    return found


@pytest.mark.parametrize("cores", [0.0, 2.0, 5.9, 6.0, 64.0])
@pytest.mark.parametrize("z", [0.0, 1.0, 3.0])
def test_priors_never_exceed_requests(cores: float, z: float) -> None:
    peak = Request(cpu_cores=cores, mem_gib=4.0, gpus=cores / 8.0)

    found = prior(replace(PREDICTOR, peak=peak), replace(POLICY, z=z))

    mean, deviation = found[:, [0, 2]], found[:, [1, 3]]
    assert (mean + z * deviation <= COMPUTE + 1e-6).all()
    assert (found >= 0.0).all()


def test_a_prior_is_the_predicted_use_where_similar_jobs_were_measured() -> None:
    found = prior(PREDICTOR)

    assert (found[:, 0] == 2000.0).all()
    assert found[:, 1] == pytest.approx(np.full(len(found), 1000.0))
    assert (found[:, 2] == np.minimum(100.0, COMPUTE[:, 1])).all()


@pytest.mark.parametrize(
    "unknown",
    [replace(PREDICTOR, runs=0), replace(PREDICTOR, peak=Request(cpu_cores=np.nan, mem_gib=1.0, gpus=np.nan))],
)
def test_a_prior_is_the_request_where_nothing_is_known(unknown: ConstantPredictor) -> None:
    found = prior(unknown)

    assert (found[:, [0, 2]] == COMPUTE).all()
    assert (found[:, [1, 3]] == 0.0).all()
