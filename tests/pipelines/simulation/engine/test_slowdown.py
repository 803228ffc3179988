"""Contract of every truth, and the harm that contention does."""

import math
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pipelines.simulation.engine.slowdown import (
    KILLED_AFTER_FRAC,
    SLOWDOWN_MODELS,
    ShrunkRun,
    contention,
    contention_ideal,
    need_of,
    predicted,
)
from scheduler_core.errors import BadInput
from scheduler_core.types import Reason, Recommendation, Request
from tests.scheduler_core.cases import NAN, REQUESTS, job, measured, request


def advice(change: float) -> Recommendation:
    return replace(Recommendation.unchanged(job(), Reason.SHRUNK), run_time_change=change)


USED = st.fixed_dictionaries(
    {
        "cpu_cores": st.floats(0.0, 128.0),
        "mem_gib": st.floats(0.0, 512.0),
        "gpus": st.floats(0.0, 16.0),
        "gpu_mem_gib": st.floats(0.0, 256.0),
        "run_s": st.floats(1.0, 1e6),
    }
)


@pytest.mark.parametrize("name", sorted(SLOWDOWN_MODELS))
@settings(deadline=None)
@given(used=USED, wants=REQUESTS)
def test_at_the_full_request_a_run_is_as_recorded(name: str, used: dict[str, float], wants: Request) -> None:
    recorded = measured(**used)

    for answer in (None, advice(0.0), advice(NAN), advice(0.4)):
        assert SLOWDOWN_MODELS[name](recorded, wants, wants, answer) == ShrunkRun(run_s=recorded.run_s)


@pytest.mark.parametrize("name", sorted(SLOWDOWN_MODELS))
@settings(deadline=None)
@given(used=USED, wants=REQUESTS, alpha=st.floats(0.1, 1.0))
def test_outcomes_are_positive_and_deterministic(
    name: str, used: dict[str, float], wants: Request, alpha: float
) -> None:
    given_ = Request(cpu_cores=alpha * wants.cpu_cores, mem_gib=alpha * wants.mem_gib, gpus=alpha * wants.gpus)

    outcome = SLOWDOWN_MODELS[name](measured(**used), wants, given_, advice(0.1))

    assert outcome.run_s > 0.0
    assert outcome == SLOWDOWN_MODELS[name](measured(**used), wants, given_, advice(0.1))


def test_need_is_what_was_used_as_far_as_the_request_goes() -> None:
    need = need_of(
        measured(cpu_cores=9.0, mem_gib=3.0, gpus=0.9, gpu_mem_gib=12.0, device_mem_gib=16.0), request(6.0, 8.0, 0.5)
    )

    assert (need.cpu_cores, need.mem_gib, need.gpus, need.gpu_mem_gib) == (6.0, 3.0, 0.5, 8.0)


def test_need_has_no_bound_where_the_trace_lacks_the_request() -> None:
    need = need_of(measured(cpu_cores=9.0), request(NAN, 8.0, NAN))

    assert need.cpu_cores == 9.0
    assert need.gpu_mem_gib == 1.0


@pytest.mark.parametrize(
    ("allocated", "stretch"),
    [
        ((6.0, 8.0, 0.5), 1.0),
        ((4.0, 8.0, 0.5), 1.0),
        ((2.0, 8.0, 0.5), 2.0),
        ((3.0, 8.0, 0.1), 4.0),
        ((6.0, 3.0, 0.4), 1.0),
    ],
)
def test_the_worst_shortage_stretches(allocated: tuple[float, float, float], stretch: float) -> None:
    recorded = measured(100.0, cpu_cores=4.0, mem_gib=3.0, gpus=0.4, gpu_mem_gib=1.0)

    outcome = contention_ideal(recorded, request(6.0, 8.0, 0.5), request(*allocated), None)

    assert outcome == ShrunkRun(run_s=100.0 * stretch, stretch=pytest.approx(stretch))


@pytest.mark.parametrize(
    ("asked", "given_", "use", "spread", "stretch"),
    [
        (1.0, 0.7, 0.6, 0.0, 1.14),
        (1.0, 0.7, 0.6, 1.28, 1.28),
        (4.0, 2.8, 2.4, 0.0, 1.14),
        (1.0, 0.7, 0.0, 0.0, 1.0),
        (0.5, 0.5, 0.4, 0.0, 1.0),
    ],
    ids=["a part no smaller than use", "wide kernels", "four GPUs, each in part", "no use", "as requested"],
)
def test_a_part_of_a_gpu_slows_as_measured(
    asked: float, given_: float, use: float, spread: float, stretch: float
) -> None:
    recorded = measured(100.0, gpus=use, gpu_spread=spread)

    outcome = contention(recorded, request(6.0, 8.0, asked), request(6.0, 8.0, given_), None)

    assert outcome.stretch == pytest.approx(stretch, abs=0.005)


def test_a_part_smaller_still_is_judged_relative_to_the_part_requested() -> None:
    recorded, asked = measured(100.0, gpus=0.3), request(6.0, 8.0, 0.5)
    whole = contention(recorded, request(6.0, 8.0, 1.0), request(6.0, 8.0, 0.25), None).stretch
    part = contention(recorded, request(6.0, 8.0, 1.0), asked, None).stretch

    assert contention(recorded, asked, request(6.0, 8.0, 0.25), None).stretch == pytest.approx(whole / part)


@pytest.mark.parametrize("allocated", [(6.0, 2.9, 0.5), (6.0, 8.0, 0.2)], ids=["memory", "GPU memory"])
def test_too_little_memory_kills(allocated: tuple[float, float, float]) -> None:
    recorded = measured(100.0, cpu_cores=4.0, mem_gib=3.0, gpus=0.0, gpu_mem_gib=4.0)

    outcome = contention(recorded, request(6.0, 8.0, 0.5), request(*allocated), None)

    assert outcome == ShrunkRun(run_s=100.0 * KILLED_AFTER_FRAC, stretch=1.0, killed=True)


def test_nothing_of_what_is_needed_never_ends() -> None:
    assert contention(measured(cpu_cores=1.0), request(), request(0.0, 8.0, 1.0), None).run_s == math.inf


def test_predicted_follows_the_model_when_shrunk() -> None:
    outcome = predicted(measured(100.0), request(6.0, 8.0, 0.5), request(3.0, 8.0, 0.5), advice(0.04))

    assert outcome == ShrunkRun(run_s=pytest.approx(104.0), stretch=pytest.approx(1.04))


def test_a_recorded_run_takes_time() -> None:
    with pytest.raises(BadInput, match="more than 0"):
        measured(0.0)
