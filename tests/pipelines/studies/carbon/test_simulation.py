"""Elastic jobs over time: schedules worked by hand, work and energy conserved, budgets kept, nothing lost."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pipelines.studies.carbon.arms import fifo_at_max, fixed_at_optimal, greedy_at_max
from pipelines.studies.carbon.jobs import ArrivingJobs
from pipelines.studies.carbon.simulation import STUCK_S, Site, simulate
from scheduler_core.errors import BadInput
from scheduler_core.planning.carbon.allocator import BudgetRule, allocate
from scheduler_core.planning.carbon.budget import Bank
from scheduler_core.planning.carbon.elastic import CountsAndFrequencies, ElasticJobs
from scheduler_core.planning.carbon.round import Planner
from tests.examples import examples
from tests.pipelines.studies.carbon.arrivals import arriving, drawn

PLANNERS: dict[str, Planner] = {
    "allocate": allocate,
    "greedy_at_max": greedy_at_max,
    "fixed_at_optimal": fixed_at_optimal,
    "fifo_at_max": fifo_at_max,
}


def site(gpus: int = 4, budget_g: float = np.inf, **more: object) -> Site:
    given = {"period_s": 100.0, "intensity_g_per_kwh": lambda _: 1000.0, "allowance_g": lambda _: budget_g}
    return Site(gpus=gpus, **{**given, **more})  # type: ignore[arg-type]


def test_one_job_alone_by_hand() -> None:
    simulated = simulate(arriving([0.0], [250.0]), site(gpus=1, idle_w=30.0), fifo_at_max, as_requested=True)

    assert simulated.jct_s.tolist() == [250.0]
    assert simulated.kwh == pytest.approx([250.0 * 200.0 / 3.6e6])
    assert simulated.grams == pytest.approx(1000.0 * simulated.kwh)
    assert (simulated.gpu_s.tolist(), simulated.rounds) == ([250.0], 3)
    assert simulated.idle_kwh == pytest.approx(0.0)


def test_five_jobs_first_in_first_out_by_hand() -> None:
    jobs = arriving([0.0, 0.0, 50.0, 100.0, 150.0], [200.0, 50.0, 100.0, 300.0, 100.0], requested=[1, 1, 4, 1, 1])

    simulated = simulate(jobs, site(gpus=4), fifo_at_max, as_requested=True)

    # The third asks for all GPUs: it waits for the first to end at 200, and the two behind it wait for it, to 250;
    # they start with the period that begins at 300.
    assert simulated.jct_s.tolist() == [200.0, 50.0, 200.0, 500.0, 250.0]
    assert simulated.gpu_s.tolist() == [200.0, 50.0, 200.0, 300.0, 100.0]


def test_rounds_at_arrivals_and_ends_leave_no_gpu_waiting_for_the_period() -> None:
    jobs = arriving([0.0, 0.0, 130.0], [50.0, 70.0, 20.0])

    simulated = simulate(jobs, site(gpus=1, at_events=True), fifo_at_max, as_requested=True)

    assert simulated.jct_s == pytest.approx([50.0, 120.0, 20.0])


def test_idle_gpus_draw_until_the_last_job_ends() -> None:
    simulated = simulate(arriving([0.0], [250.0]), site(gpus=3, idle_w=30.0), fifo_at_max, as_requested=True)

    assert simulated.idle_kwh == pytest.approx(2 * 250.0 * 30.0 / 3.6e6)


def test_a_changed_count_costs_its_restart() -> None:
    counts = iter([1, 2, 2, 2])

    def planner(jobs: ElasticJobs, **_: object) -> CountsAndFrequencies:
        return CountsAndFrequencies(gpus=np.array([next(counts)]), step=np.array([1]), postponed=np.array([False]))

    simulated = simulate(arriving([0.0], [200.0]), site(restart_s=30.0), planner)

    assert simulated.changes.tolist() == [1]
    assert simulated.jct_s == pytest.approx([100.0 + 30.0 + 100.0 / np.sqrt(2.0)])
    assert simulated.gpu_s == pytest.approx([100.0 + 2 * (30.0 + 100.0 / np.sqrt(2.0))])


@pytest.mark.parametrize("name", PLANNERS)
@pytest.mark.parametrize("at_events", [False, True])
@settings(max_examples=examples(10))
@given(seed=st.integers(0, 10_000), share=st.floats(0.3, 1.5))
def test_every_job_ends_and_its_energy_is_what_its_gpus_drew(
    name: str, at_events: bool, seed: int, share: float
) -> None:
    jobs = drawn(seed)
    budget_g = share * 4 * 200.0 * 100.0 / 3.6e6 * 1000.0
    as_requested = name.startswith("f")
    least = jobs.requested.max() * 200.0 * 100.0 / 3600.0 if as_requested else 0.0

    simulated = simulate(
        jobs, site(budget_g=max(budget_g, least), at_events=at_events), PLANNERS[name], as_requested=as_requested
    )

    assert simulated.unfinished == 0
    assert (simulated.jct_s >= jobs.steps / 2.0 - 1e-6).all()
    assert (simulated.kwh >= simulated.gpu_s * 100.0 / 3.6e6 - 1e-12).all()
    assert (simulated.kwh <= simulated.gpu_s * 200.0 / 3.6e6 + 1e-12).all()
    assert simulated.grams == pytest.approx(1000.0 * simulated.kwh)
    assert simulated.over_budget <= 1e-6
    assert simulated.gpu_s.sum() <= 4 * ((jobs.submit_s + simulated.jct_s).max() - 0.0) + 1e-6


def test_a_tighter_budget_takes_longer_and_less_energy() -> None:
    jobs = drawn(3)

    tight, loose = (simulate(jobs, site(budget_g=grams), allocate) for grams in (8.0, np.inf))

    assert tight.jct_s.mean() > loose.jct_s.mean()
    assert tight.kwh.sum() < loose.kwh.sum()


def test_banked_budget_is_spent_later_and_never_more_than_was_banked() -> None:
    jobs = arriving([0.0, 250.0, 250.0, 250.0], [20.0, 300.0, 300.0, 300.0])
    spent: list[tuple[float, float]] = []

    def watched(jobs: ElasticJobs, *, budget_g: float, **rest: object) -> CountsAndFrequencies:
        spent.append((float(jobs.age_s.max()), budget_g))
        return allocate(jobs, budget_g=budget_g, **rest)  # type: ignore[arg-type]

    simulate(jobs, site(budget_g=6.0, bank=Bank(most_g=9.0)), watched)

    allowed = [grams for _, grams in spent]
    assert allowed[0] == 6.0
    assert max(allowed) == pytest.approx(15.0)
    plain = simulate(jobs, site(budget_g=6.0), allocate)
    banked = simulate(jobs, site(budget_g=6.0, bank=Bank(most_g=9.0)), allocate)
    assert banked.jct_s.mean() < plain.jct_s.mean()


def test_a_budget_that_lets_nothing_run_ends_the_simulation_with_jobs_left() -> None:
    simulated = simulate(arriving([0.0, 5.0], [50.0, 60.0]), site(budget_g=0.0), allocate)

    assert (simulated.unfinished, simulated.kwh.sum()) == (2, 0.0)
    assert simulated.rounds == STUCK_S / 100.0


def test_jobs_past_their_predicted_work_go_on() -> None:
    simulated = simulate(arriving([0.0], [1000.0], told=0.01), site(gpus=1), allocate)

    assert simulated.unfinished == 0
    assert simulated.jct_s >= 1000.0


@pytest.mark.parametrize("rule", ["period", "to-completion"])
@settings(max_examples=examples(10))
@given(seed=st.integers(0, 10_000), share=st.floats(0.3, 1.5))
def test_a_budget_holds_whatever_was_predicted(rule: BudgetRule, seed: int, share: float) -> None:
    jobs = drawn(seed)
    off = np.exp(np.random.default_rng(seed).normal(0.0, 1.5, len(jobs)))
    jobs = replace(jobs, predicted_steps=jobs.steps * off)
    span_s = 100.0 if rule == "period" else jobs.steps.sum() / 4.0

    simulated = simulate(jobs, site(budget_g=share * 4 * 200.0 * span_s / 3.6e6 * 1000.0, rule=rule))

    assert simulated.over_planned <= 1e-9
    assert simulated.over_budget <= 1e-6
    assert rule == "to-completion" or not simulated.unfinished


def test_a_budget_until_the_jobs_end_leaves_undone_what_it_does_not_suffice_for() -> None:
    # 4 Wh at 200 W or 3.5 Wh at 100 W each
    simulated = simulate(arriving([0.0, 0.0], [72.0, 72.0]), site(budget_g=3.0, rule="to-completion"))

    assert simulated.unfinished == 1
    assert 2.0 < simulated.grams.sum() <= 3.0


def test_dirtier_hours_run_less_under_a_budget_in_grams() -> None:
    jobs = arriving([0.0], [500.0])
    dirty = site(gpus=4, budget_g=8.0, intensity_g_per_kwh=lambda now_s: 1000.0 if now_s < 200.0 else 200.0)

    simulated = simulate(jobs, dirty, allocate)
    clean = simulate(jobs, replace(dirty, intensity_g_per_kwh=lambda _: 200.0), allocate)

    assert simulated.jct_s > clean.jct_s
    assert simulated.grams.sum() > clean.grams.sum()


def test_no_jobs_are_no_rounds() -> None:
    simulated = simulate(arriving([], []), site(), allocate)

    assert (len(simulated.jct_s), simulated.rounds, simulated.idle_kwh) == (0, 0, 0.0)


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"submit_s": np.array([5.0, 1.0])}, "out of order"),
        ({"steps": np.array([5.0])}, "found steps not of 2 jobs"),
        ({"requested": np.array([1, 9])}, "count without a speed"),
        ({"requested": np.array([1, 0])}, "count without a speed"),
    ],
)
def test_jobs_that_cannot_be_meant_are_refused(change: dict[str, np.ndarray], said: str) -> None:
    jobs = arriving([0.0, 1.0], [10.0, 10.0])
    columns = {name: getattr(jobs, name) for name in ArrivingJobs.__slots__}

    with pytest.raises(BadInput, match=said):
        ArrivingJobs(**{**columns, **change})


def test_a_period_has_to_last() -> None:
    with pytest.raises(BadInput, match=r"a period of 0\.0 s"):
        simulate(arriving([0.0], [10.0]), site(period_s=0.0), allocate)
