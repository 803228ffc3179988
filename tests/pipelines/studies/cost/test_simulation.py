"""Runs of jobs with due dates: a schedule worked by hand, and what holds for every policy."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pipelines.studies.cost.simulation import BASELINES, Asked, Baseline, Outcome, Policy, Site, SubmittedJobs, simulate
from scheduler_core.errors import BadInput
from scheduler_core.planning.cost import Decision, Nodes, NodeType, Problem
from scheduler_core.planning.hourly import HourlySeries
from tests.examples import examples

HOUR = 3600.0
SMALL = NodeType(name="small", gpu_type="p100", gpus=2, idle_w=100.0, gpu_active_w=200.0)


def site(nodes: int = 1, **more: object) -> Site:
    """Return nodes of two GPUs at 0.1 USD/kWh in even hours and 0.3 in odd ones."""
    price = HourlySeries(start_s=0.0, values=np.array([0.1, 0.3]), unit="USD/kWh", wrap=True)
    kinds = Nodes(types=(SMALL,), type_of=np.zeros(nodes, np.int64))
    return replace(Site(nodes=kinds, price=price, start_ts=0.0), **more)


def five(**more: object) -> SubmittedJobs:
    """Return five jobs of 2, 1, 1, 2 and 1 hours on one GPU, half as long on two, all asking for one."""
    hours = np.array([2.0, 1.0, 1.0, 2.0, 1.0])
    run_s = np.full((5, 1, 3), np.nan)
    run_s[:, 0, 1], run_s[:, 0, 2] = hours * HOUR, hours * HOUR / 2.0
    jobs = SubmittedJobs(
        submit_s=np.array([0.0, 0.0, 0.5, 0.5, 0.5]) * HOUR,
        due_s=np.array([2.0, 9.0, 4.0, 3.0, 1.5]) * HOUR,
        weight_usd_per_s=np.array([1.0, 1.0, 3.0, 1.0, 2.0]) / HOUR,
        run_s=run_s,
        asked_gpus=np.ones(5, np.int64),
        off_by=np.ones(5),
    )
    return replace(jobs, **more)


def run(jobs: SubmittedJobs, where: Site, policy: Policy, seed: int = 0) -> Outcome:
    return simulate(jobs, where, policy, np.random.default_rng(seed))


@pytest.mark.parametrize(
    ("name", "ends_h"),
    [
        # 0 and 1 begin; at 1 h job 2 (by place), at 2 h jobs 3 and 4
        ("fifo, fixed", [2.0, 1.0, 2.0, 4.0, 3.0]),
        # at 1 h job 4 (due 1.5 h), at 2 h jobs 3 and 2
        ("edf, fixed", [2.0, 1.0, 3.0, 4.0, 2.0]),
        # at 1 h job 2 (weight 3), at 2 h jobs 4 and 3
        ("priority, fixed", [2.0, 1.0, 2.0, 4.0, 3.0]),
        # one at a time on two GPUs, in order of the due dates that are there
        ("edf, fastest", [1.0, 3.5, 3.0, 2.5, 1.5]),
    ],
)
def test_five_jobs_worked_by_hand(name: str, ends_h: list[float]) -> None:
    outcome = run(five(), site(), BASELINES[name])

    assert outcome.finish_s / HOUR == pytest.approx(ends_h)
    late_h = np.maximum(np.array(ends_h) - np.array([2.0, 9.0, 4.0, 3.0, 1.5]), 0.0)
    assert outcome.tardiness_usd == pytest.approx(late_h @ np.array([1.0, 1.0, 3.0, 1.0, 2.0]))


def test_energy_of_the_hand_worked_schedule_is_of_switched_on_nodes_at_each_hours_price() -> None:
    # fifo, fixed: two GPUs until 3 h (500 W), then one (300 W) until 4 h; hours cost 0.1, 0.3, 0.1, 0.3
    outcome = run(five(), site(nodes=1, pue=2.0), BASELINES["fifo, fixed"])

    assert outcome.energy_usd == pytest.approx(2.0 * (0.5 * (0.1 + 0.3 + 0.1) + 0.3 * 0.3))


def test_a_stopped_job_owes_a_restart_and_no_progress_is_lost() -> None:
    def turns(problem: Problem, asked: Asked, rng: np.random.Generator) -> Decision:
        first = round(problem.now_s / 1200.0) % len(asked.gpus)
        node = np.full(len(asked.gpus), -1)
        node[first] = 0
        return Decision(node=node, gpus=np.where(node == 0, 2, 0))

    jobs = five(submit_s=np.zeros(5))
    outcome = run(jobs, site(restart_s=600.0, period_s=1200.0), turns)

    assert outcome.restarts > 0
    for job in range(5):
        held_s = sum(span.until_s - span.from_s for span in outcome.spans if job in span.job)
        paused = sum(float(span.paused_s[span.job == job].sum()) for span in outcome.spans)
        assert held_s - paused == pytest.approx(jobs.run_s[job, 0, 2])


def test_run_times_that_are_off_stretch_what_is_left() -> None:
    slow = run(five(off_by=np.full(5, 1.1)), site(), BASELINES["fifo, fixed"])

    assert slow.finish_s[0] == pytest.approx(2.2 * HOUR)


def test_the_speed_of_a_job_is_known_once_it_has_run() -> None:
    seen: list[list[float]] = []

    def watching(problem: Problem, asked: Asked, rng: np.random.Generator) -> Decision:
        seen.append(problem.jobs.run_s[:, 0, 1].tolist())
        return BASELINES["fifo, fixed"](problem, asked, rng)

    run(five(submit_s=np.zeros(5), off_by=np.full(5, 1.5)), site(period_s=HOUR), watching)

    # Of 2, 1, 1, 2 and 1 predicted hours the first two have run for one hour; in truth they last 3 and 1.5.
    assert seen[0] == pytest.approx([2 * HOUR, HOUR, HOUR, 2 * HOUR, HOUR])
    assert seen[1] == pytest.approx([2 * HOUR, 0.5 * HOUR, HOUR, 2 * HOUR, HOUR])


@st.composite
def worlds(draw: st.DrawFn) -> tuple[SubmittedJobs, Site, Policy]:
    """Draw jobs, two node types, prices that may be negative, and any first-principle method."""
    count, seed = draw(st.integers(1, 12)), draw(st.integers(0, 2**32 - 1))
    rng = np.random.default_rng(seed)
    types = (
        SMALL,
        NodeType(name="large", gpu_type="v100", gpus=4, idle_w=150.0, gpu_active_w=270.0),
    )
    run_s = np.full((count, 2, 5), np.nan)
    run_s[:, 0, 1:3] = rng.uniform(100.0, 4 * HOUR, (count, 2))
    run_s[:, 1, 1:5] = rng.uniform(100.0, 4 * HOUR, (count, 4))
    run_s[rng.random(run_s.shape) < 0.2] = np.nan
    run_s[:, 1, 1] = rng.uniform(100.0, 4 * HOUR, count)
    submit_s = np.sort(rng.uniform(0.0, 3 * HOUR, count))
    asked = np.array([rng.choice(np.flatnonzero(~np.isnan(each).all(axis=0))) for each in run_s])
    jobs = SubmittedJobs(
        submit_s=submit_s,
        due_s=submit_s + rng.uniform(0.0, 5 * HOUR, count),
        weight_usd_per_s=rng.uniform(0.0, 1.0, count),
        run_s=run_s,
        asked_gpus=asked,
        off_by=rng.uniform(0.8, 1.2, count),
    )
    nodes = Nodes(types=types, type_of=np.array([0, 1, 1][: draw(st.integers(2, 3))]))
    price = HourlySeries(start_s=0.0, values=rng.uniform(-0.1, 0.4, 24), unit="USD/kWh", wrap=True)
    policy = Baseline(
        order=draw(st.sampled_from(["fifo", "edf", "priority"])),
        configuration=draw(st.sampled_from(["fixed", "fastest"])),
        preemptive=draw(st.booleans()),
    )
    return (
        jobs,
        Site(nodes=nodes, price=price, start_ts=HOUR, pue=1.3, restart_s=draw(st.sampled_from([0.0, 90.0]))),
        policy,
    )


@settings(max_examples=examples(60))
@given(worlds())
def test_every_job_ends_no_node_is_overfull_and_work_is_conserved(
    world: tuple[SubmittedJobs, Site, Policy],
) -> None:
    jobs, where, policy = world

    outcome = run(jobs, where, policy)

    assert not np.isnan(outcome.finish_s).any()
    assert (outcome.finish_s > jobs.submit_s).all()
    done = np.zeros(len(jobs))
    for span in outcome.spans:
        assert len(set(span.job.tolist())) == len(span.job)
        taken = np.bincount(span.place, weights=span.gpus, minlength=len(where.nodes.gpus))
        assert (taken <= where.nodes.gpus).all()
        true_s = jobs.run_s[span.job, where.nodes.type_of[span.place], span.gpus] * jobs.off_by[span.job]
        done[span.job] += (span.until_s - span.from_s - span.paused_s) / true_s
    assert done == pytest.approx(np.ones(len(jobs)))


@settings(max_examples=examples(20))
@given(worlds())
def test_nobody_is_stopped_by_a_method_that_does_not_preempt(world: tuple[SubmittedJobs, Site, Policy]) -> None:
    jobs, where, policy = world
    assert isinstance(policy, Baseline)

    outcome = run(jobs, where, replace(policy, preemptive=False))

    assert outcome.restarts == 0


def test_jobs_that_are_always_postponed_are_told_of() -> None:
    def never(problem: Problem, asked: Asked, rng: np.random.Generator) -> Decision:
        return Decision.nothing(len(asked.gpus))

    with pytest.raises(BadInput, match="5 jobs unfinished"):
        run(five(), site(period_s=1e6), never)
