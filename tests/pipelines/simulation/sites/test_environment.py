"""The environment of sites: accounts, capacity, ends, and that no decision sees the future."""

import numpy as np
import pytest

from pipelines.simulation.energy.account import account
from pipelines.simulation.engine.schedule import Ending, Schedule
from pipelines.simulation.measures.job_metrics import Uses
from pipelines.simulation.sites.environment import earned_usd, energy_of, held_gpus, outcome_of, simulated
from pipelines.simulation.sites.loop import State
from pipelines.simulation.sites.weeks import STEP_S, Place, Weeks, stacked
from scheduler_core.cluster import Machine
from scheduler_core.kernels.site_value import FEATURES
from scheduler_core.planning.sites import POLICIES, Policy, policy
from tests.pipelines.simulation.engine.schedules import Came, schedule
from tests.pipelines.simulation.sites.made_weeks import START_TS, places, week

SCORES = [0.5 * (-1) ** place for place in range(len(FEATURES))]


def each_policy() -> list[Policy]:
    return [policy(name, SCORES if name == "scorer" else []) for name in POLICIES]


def site_machine(each: Place) -> Machine:
    return Machine(name=each.name, cpu_cores=0.0, mem_gib=0.0, gpus=each.gpus)


def as_schedule(weeks: Weeks, state: State, site: int, machine: Machine, end_s: float) -> Schedule:
    """Return the runs of one site as a schedule of one machine."""
    ran = np.flatnonzero(state.site[0] == site)
    ran = ran[np.argsort(state.start[0, ran], kind="stable")]
    came = [Came(request=(0.0, 0.0, float(weeks.jobs.gpus[0, job]))) for job in ran]
    workload = schedule(came, []).workload
    begin, run = state.start[0, ran] * STEP_S, weeks.run_steps[0, ran] * STEP_S
    rows = np.arange(len(ran))
    return Schedule(
        workload=workload,
        machines=(machine,),
        end_s=end_s,
        job=rows,
        start_s=begin,
        end_run_s=begin + run,
        full=np.zeros(len(ran), dtype=np.bool_),
        ending=np.full(len(ran), Ending.COMPLETED, dtype=np.int8),
        host_offsets=np.arange(len(ran) + 1),
        hosts=np.zeros(len(ran), dtype=np.int64),
        host_counts=np.ones(len(ran), dtype=np.int64),
        never_fits=np.zeros(len(ran), dtype=np.bool_),
        finished_s=begin + run,
    )


@pytest.mark.parametrize("name", ["local", "greedy"])
def test_energy_carbon_and_money_are_those_of_the_accounts(name: str) -> None:
    sites, weeks = places(), week()
    state = simulated(weeks, policy(name))
    found = energy_of(sites, weeks, state)
    end_s = (weeks.paid.shape[2] - 1) * STEP_S
    for number, each in enumerate(sites):
        runs = as_schedule(weeks, state, number, site_machine(each), end_s)
        uses = Uses(mean=np.full((len(runs.job), 3), np.nan))
        total = account(runs, uses, [each.power], each.grid, START_TS, assumed=each.assumed).total
        assert found.kwh[number] == pytest.approx(total.kwh, rel=1e-12)
        assert found.carbon_g[number] == pytest.approx(total.carbon_g, rel=1e-12)
        assert found.cost_usd[number] == pytest.approx(total.cost_usd, rel=1e-12)


@pytest.mark.parametrize("each", each_policy(), ids=lambda each: each.name)
def test_no_policy_exceeds_a_site_or_starts_a_job_outside_its_time(each: Policy) -> None:
    weeks = week()
    state = simulated(weeks, each)
    assert (held_gpus(weeks, state, 0) <= weeks.capacity[0][:, None]).all()
    ran = state.start[0] >= 0
    assert ran.any()
    assert (state.start[0] >= weeks.arrive[0])[ran].all()
    assert (state.start[0] < weeks.jobs.due[0])[ran].all()


def test_utility_is_the_worth_of_gpu_time_less_what_the_accounts_show() -> None:
    sites, weeks = places(), week()
    state = simulated(weeks, policy("greedy"))
    none = simulated(weeks._replace(arrive=weeks.arrive * 0 + (1 << 40)), policy("greedy"))
    ran, idle = energy_of(sites, weeks, state), energy_of(sites, weeks, none)
    usd = (ran.cost_usd - idle.cost_usd).sum() + 80e-6 * (ran.carbon_g - idle.carbon_g).sum()
    found = outcome_of(sites, weeks, state)
    begun = state.start[0] >= 0
    gpu_h = (weeks.jobs.gpus[0] * weeks.run_steps[0])[begun].sum() / 4.0
    met = round((1.0 - found.missed_frac) * len(begun))
    assert found.utility_usd == pytest.approx(0.10 * gpu_h - usd - found.moves_usd + 0.5 * met)


@pytest.mark.parametrize("each", each_policy(), ids=lambda each: each.name)
def test_prices_of_the_future_change_no_earlier_decision(each: Policy) -> None:
    weeks, cut = week(), 200
    later = weeks._replace(usd=weeks.usd.copy(), price=weeks.price.copy(), carbon=weeks.carbon.copy())
    for series in (later.usd, later.price, later.carbon):
        series[:, :, 24 + cut // 4 :] *= 3.0
    one, other = simulated(weeks, each), simulated(later, each)
    before = (one.start[0] < cut) & (one.start[0] >= 0)
    assert before.any()
    assert np.array_equal(one.start[0][before], other.start[0][before])
    assert np.array_equal(one.site[0][before], other.site[0][before])


def test_real_run_times_change_no_decision_before_they_show() -> None:
    weeks = week()
    longer = weeks._replace(run_steps=weeks.run_steps + 40)
    for each in each_policy():
        one, other = simulated(weeks, each), simulated(longer, each)
        first = one.start[0] == one.start[0][one.start[0] >= 0].min()
        assert np.array_equal(one.site[0][first], other.site[0][first])


def test_a_batch_gives_what_each_of_its_weeks_gives_alone() -> None:
    several = [week(seed, jobs=60 + 20 * seed) for seed in range(3)]
    together = stacked(several)
    for each in each_policy():
        usd = earned_usd(together, simulated(together, each))
        for number, alone in enumerate(several):
            assert usd[number].sum() == pytest.approx(earned_usd(alone, simulated(alone, each)).sum())
