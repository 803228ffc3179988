"""Contract of every predictor in the box, and what the oracle knows."""

import math

import numpy as np
import pytest

from pipelines.simulation.advice import ConstantPredictor, OraclePredictor, oracle_policy
from pipelines.simulation.engine.slowdown import contention, contention_ideal
from scheduler_core.shrink import ShrinkPolicy, shrink
from scheduler_core.types import Predictor, Reason
from tests.scheduler_core.cases import ToyPredictor, job, measured, request

JOBS = [job("a", request(6.0, 16.0, 1.0)), job("b", request(2.0, 4.0, 0.5)), job("c", request(8.0, 8.0, 2.0))]
MEASURED = {
    JOBS[0]: measured(100.0, cpu_cores=2.0, mem_gib=3.0, gpus=0.2, gpu_mem_gib=4.0),
    JOBS[1]: measured(200.0, cpu_cores=9.0, mem_gib=9.0, gpus=0.4, gpu_mem_gib=1.0),
    JOBS[2]: measured(300.0, cpu_cores=1.0, mem_gib=1.0, gpus=0.0, gpu_mem_gib=0.0),
}
ORACLE = OraclePredictor(measured=MEASURED)
EXACT = oracle_policy({}, 16.0)


@pytest.mark.parametrize(
    "predictor",
    [ConstantPredictor(run_s=60.0, peak=request(1.0, 1.0, 0.1)), ORACLE, ToyPredictor()],
    ids=lambda p: type(p).__name__,
)
def test_contract(predictor: Predictor) -> None:
    rows = np.array([2, 0, 0, 1])
    requests = np.array([JOBS[row].request.row() for row in rows])

    times = predictor.run_times(JOBS, rows, requests)
    peak = predictor.peak_use(JOBS)

    assert times.p50.shape == times.p90.shape == (4,)
    assert times.p50[1] == times.p50[2], "equal rows, equal answers"
    assert (times.p90 >= times.p50).all()
    assert {np.shape(v) for v in (peak.cpu_cores, peak.mem_gib, peak.gpus, peak.gpu_mem_gib, peak.runs)} == {(3,)}
    assert len(predictor.knowledge(JOBS)) == 3
    assert len(predictor.peak_use([]).runs) == len(predictor.knowledge([])) == 0
    empty = predictor.run_times([], np.array([], dtype=np.int64), np.empty((0, 3)))
    assert empty.p50.shape == (0,)


def test_oracle_targets_are_the_needs_with_gpus_on_the_grid() -> None:
    answers = shrink(JOBS, ORACLE, EXACT)

    assert answers[0].target == request(2.0, 3.0, 0.25)
    assert answers[1].target == request(2.0, 4.0, 0.4), "what was used beyond the request is not needed"
    assert answers[2].target == request(1.0, 1.0, 0.05), "a job that asked for a GPU keeps a share of one"


def test_oracle_gives_the_part_of_a_gpu_that_slows_by_less_than_theta() -> None:
    wide, recorded = job("wide", request(6.0, 29.0, 1.0)), measured(gpus=0.6)
    [measured_law] = shrink([wide], OraclePredictor(measured={wide: recorded}), EXACT)
    [ideal] = shrink([wide], OraclePredictor(measured={wide: recorded}, slowdown=contention_ideal), EXACT)

    assert (measured_law.target.gpus, ideal.target.gpus) == (0.9, 0.6)
    assert measured_law.target.cpu_cores == ideal.target.cpu_cores == 1.0
    stretches = [contention(recorded, wide.request, request(6.0, 29.0, gpus), None).stretch for gpus in (0.85, 0.9)]
    assert stretches[0] > 1.05 > stretches[1]


def test_oracle_foresees_stretch_and_kill() -> None:
    requests = np.array([(1.0, 16.0, 1.0), (6.0, 1.0, 1.0)])

    times = ORACLE.run_times(JOBS, np.array([0, 0]), requests)

    assert times.p50.tolist() == [200.0, math.inf]


def test_oracle_lets_the_unguarded_algorithm_do_no_harm_beyond_theta() -> None:
    for answer, recorded in zip(shrink(JOBS, ORACLE, ShrinkPolicy(guard="none")), MEASURED.values(), strict=True):
        outcome = contention(recorded, answer.request, answer.target, answer)
        assert not outcome.killed
        assert outcome.stretch < 1.05


def test_oracle_does_not_know_strangers() -> None:
    answer = shrink([job("stranger")], ORACLE, EXACT)[0]

    assert answer.target == answer.request
    assert set(answer.reasons.values()) == {Reason.COLD_START}
