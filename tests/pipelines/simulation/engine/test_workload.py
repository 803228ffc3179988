"""Machines that go away: what happens to their gangs, and outages drawn from a rate."""

import math
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pipelines.simulation.engine.workload import Draws, draw_outages, poisson_draws
from scheduler_core.errors import BadInput
from scheduler_core.queueing import Discipline
from tests.pipelines.simulation.engine.simulations import gpu_machines, hosts_of, outages, run, simulated, workload


def test_a_gang_with_an_instance_there_loses_its_run_and_waits_in_its_old_place() -> None:
    jobs = workload(
        {"at": 0.0, "gpus": 2, "instances": 3, "run": 100.0},
        {"at": 1.0, "gpus": 1, "run": 50.0},
        {"at": 2.0, "gpus": 4, "run": 10.0},
    )

    schedule = run(jobs, gpu_machines(4, 4), Discipline(placement="first_fit"), outages=outages((1, 30.0, 60.0)))

    assert simulated(schedule) == [
        (0, 0.0, 30.0, "interrupted"),
        (1, 1.0, 30.0, "interrupted"),
        # m0 is whole at 30 and m1 away: the gang of three does not fit, and job 1 passes it.
        (1, 30.0, 80.0, "completed"),
        (0, 60.0, 160.0, "completed"),
        (2, 160.0, 170.0, "completed"),
    ]
    assert hosts_of(schedule, 2) == {0: 1}
    # Never are more GPUs free than job 2 asks for: three until 60, then one, then two.


def test_overlapping_outages_hold_a_machine_until_the_last_is_over() -> None:
    away = outages((0, 5.0, 20.0), (0, 10.0, 30.0), (0, 30.0, 40.0))

    schedule = run(workload({"at": 0.0, "gpus": 1, "run": 10.0}), gpu_machines(4), outages=away)

    assert simulated(schedule) == [(0, 0.0, 5.0, "interrupted"), (0, 40.0, 50.0, "completed")]


def test_a_run_that_ends_as_its_machine_goes_has_ended() -> None:
    schedule = run(workload({"gpus": 1, "run": 10.0}), gpu_machines(4), outages=outages((0, 10.0, 20.0)))

    assert simulated(schedule) == [(0, 0.0, 10.0, "completed")]
    assert schedule.end_s == 20.0, "a machine that comes back is a moment too"


def test_a_machine_that_never_comes_back_leaves_its_jobs_waiting() -> None:
    schedule = run(workload({"gpus": 1, "run": 10.0}), gpu_machines(4), outages=outages((0, 5.0, math.inf)))

    assert simulated(schedule) == [(0, 0.0, 5.0, "interrupted")]
    assert not schedule.never_fits.any()
    assert math.isnan(schedule.finished_s[0])


def test_a_kill_is_remembered_over_an_outage() -> None:
    jobs = workload({"gpus": 2, "run": 100.0, "granted": (0, 0, 1.0), "granted_run": 40.0, "dies": True})

    schedule = run(jobs, gpu_machines(4), outages=outages((0, 10.0, 20.0), (0, 70.0, 80.0)))

    assert simulated(schedule) == [
        (0, 0.0, 10.0, "interrupted"),
        (0, 20.0, 60.0, "killed"),
        (0, 60.0, 70.0, "interrupted"),
        (0, 80.0, 180.0, "completed"),
    ]
    assert schedule.full.tolist() == [False, False, True, True]


def test_even_a_gang_that_asks_for_nothing_needs_a_machine_that_is_up() -> None:
    schedule = run(workload({"at": 1.0, "run": 10.0}), gpu_machines(4), outages=outages((0, 0.0, 9.0)))

    assert simulated(schedule) == [(0, 9.0, 19.0, "completed")]


def test_an_outage_of_a_machine_that_is_not_there_is_refused() -> None:
    with pytest.raises(BadInput, match="found machine 2 in row 0, expected an index below 2"):
        run(workload({"gpus": 1}), gpu_machines(4, 4), outages=outages((2, 1.0, 2.0)))


@given(seed=st.integers(0, 99), machines=st.integers(1, 5), between_s=st.floats(50, 5e3), repair_s=st.floats(1e-9, 5e3))
def test_drawn_outages_are_apart_on_each_machine_and_the_same_for_a_seed(
    seed: int, machines: int, between_s: float, repair_s: float
) -> None:
    def draw() -> Any:
        rates = {"between_s": between_s, "repair_s": repair_s, "horizon_s": 1e4}
        return draw_outages(machines, rng=np.random.default_rng(seed), **rates)

    drawn = draw()

    assert (drawn.down_s < 1e4).all()
    for machine in range(machines):
        mine = drawn.machine == machine
        assert (drawn.down_s[mine][1:] > drawn.up_s[mine][:-1]).all()
    assert [column.tobytes() for column in (drawn.machine, drawn.down_s, drawn.up_s)] == [
        column.tobytes() for column in (draw().machine, draw().down_s, draw().up_s)
    ]


def test_drawn_outages_have_the_rates_asked_for() -> None:
    drawn = draw_outages(200, between_s=1000.0, repair_s=100.0, horizon_s=1e5, rng=np.random.default_rng(3))

    # 200 machines live 91 cycles of 1100 s each: 18 182 outages, give or take 0.7 %.
    assert len(drawn.machine) == pytest.approx(200 * 1e5 / 1100.0, rel=0.03)
    assert (drawn.up_s - drawn.down_s).mean() == pytest.approx(100.0, rel=0.03)


@pytest.mark.parametrize(
    "fields", [{"between_s": 0.0}, {"repair_s": math.inf}, {"horizon_s": math.nan}, {"machines": 0}]
)
def test_rates_that_cannot_be_meant_are_refused(fields: dict[str, Any]) -> None:
    meant: dict[str, Any] = {"machines": 1, "between_s": 1.0, "repair_s": 1.0, "horizon_s": 9.0, **fields}

    with pytest.raises(BadInput, match="outages: found"):
        draw_outages(meant.pop("machines"), rng=np.random.default_rng(0), **meant)


KINDS = ["ctr"] * 6 + ["nlp"] * 2 + ["cv"]


def drawn(seed: int = 3, rate_per_h: float = 1000.0, **fields: object) -> Draws:
    rng = np.random.default_rng(seed)
    return poisson_draws(KINDS, rate_per_h=rate_per_h, horizon_s=36_000.0, rng=rng, **fields)  # type: ignore[arg-type]


def test_times_are_poisson_over_the_horizon() -> None:
    times = drawn().at_s
    gaps = np.diff(times)

    # 10 000 expected: five standard deviations are 500
    assert len(times) == pytest.approx(10_000, abs=500)
    assert times[0] >= 0.0
    assert times[-1] < 36_000.0
    assert (gaps >= 0.0).all()
    assert gaps.std() == pytest.approx(gaps.mean(), rel=0.05)


def test_same_seed_same_arrivals_and_another_seed_others() -> None:
    first, again, other = drawn(seed=3), drawn(seed=3), drawn(seed=4)

    assert (first.at_s.tobytes(), first.picks.tobytes()) == (again.at_s.tobytes(), again.picks.tobytes())
    assert first.at_s.tobytes() != other.at_s.tobytes()


@pytest.mark.parametrize(
    ("mix", "share_of_cv"),
    [(None, 1 / 9), ({"cv": 30.0, "ctr": 70.0}, 0.3), ({"cv": 1.0}, 1.0), ({"nlp": 1.0, "cv": 0.0}, 0.0)],
)
def test_mix_weighs_the_types(mix: dict[str, float] | None, share_of_cv: float) -> None:
    kinds = [KINDS[pick] for pick in drawn(mix=mix).picks]

    assert kinds.count("cv") / len(kinds) == pytest.approx(share_of_cv, abs=0.025)


def test_within_a_type_every_job_is_as_likely() -> None:
    counts = np.bincount(drawn(mix={"ctr": 1.0}).picks, minlength=len(KINDS))[:6]

    assert max(counts) < 1.2 * min(counts)


@pytest.mark.parametrize("mix", [{"rl": 1.0}, {"cv": 0.0}, {"cv": 2.0, "ctr": -1.0}])
def test_a_mix_the_pool_cannot_serve_is_refused(mix: dict[str, float]) -> None:
    with pytest.raises(BadInput, match="expected weights over types of the pool"):
        drawn(mix=mix)


@pytest.mark.parametrize("rate_per_h", [0.0, -1.0, float("inf"), float("nan")])
def test_a_rate_that_cannot_be_meant_is_refused(rate_per_h: float) -> None:
    with pytest.raises(BadInput, match="positive finite"):
        drawn(rate_per_h=rate_per_h)


def test_an_empty_pool_is_refused() -> None:
    with pytest.raises(BadInput, match="empty job pool"):
        poisson_draws([], rate_per_h=1.0, horizon_s=1.0, rng=np.random.default_rng(0))
