"""Idle draw that work could do without: hand-worked, and against a look at every second."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pipelines.simulation.energy.accounting import account
from pipelines.simulation.energy.meters import empty_spans, spared, unused_gpu_kwh
from pipelines.simulation.engine.schedule import Ending, Schedule
from scheduler_core.errors import BadInput
from scheduler_core.planning.grid import Grid
from tests.pipelines.simulation.energy.sites import ASSUMED, START_TS, grid, hourly, known, power, powers, uses
from tests.pipelines.simulation.engine.schedules import Came, Ran, schedule, schedules


def test_a_machine_is_empty_before_between_and_after_its_runs() -> None:
    came = [Came(), Came(), Came(), Came()]
    ran = schedule(
        came,
        [
            Ran(job=0, start_s=10.0, end_s=40.0),
            Ran(job=1, start_s=20.0, end_s=30.0),
            Ran(job=2, start_s=40.0, end_s=50.0),
            Ran(job=3, start_s=60.0, end_s=500.0, ending=Ending.RUNNING, hosts=((1, 1),)),
        ],
        on=3,
    )

    found = empty_spans(ran)

    spans = list(zip(found.machine.tolist(), found.begin_s.tolist(), found.end_s.tolist(), strict=True))
    assert spans == [(0, 0.0, 10.0), (0, 50.0, 100.0), (1, 0.0, 60.0), (2, 0.0, 100.0)]


def test_what_is_off_draws_nothing_from_the_wait_to_the_next_run() -> None:
    # Empty for the hours 0 and 2 of three; off for half of each.
    ran = schedule([Came()], [Ran(job=0, start_s=3600.0, end_s=7200.0)], end_s=10_800.0)
    site = Grid(zone="z", carbon=hourly([100.0, 500.0, 300.0]), price=hourly([0.1, 9.0, -0.2], "USD/kWh"), pue=1.5)
    idle_kw = (40.0 + 4 * 30.0) / 1000

    found = spared(ran, [power()], site, 0.0, off_after_s=1800.0)

    assert found.machines.kwh.tolist() == pytest.approx([idle_kw])
    assert found.machines.carbon_g.tolist() == pytest.approx([1.5 * idle_kw * (50.0 + 150.0)])
    assert found.machines.cost_usd.tolist() == pytest.approx([1.5 * idle_kw * (0.05 - 0.1)])
    assert found.hours.kwh.tolist() == pytest.approx([idle_kw / 2, 0.0, idle_kw / 2])


def test_gpus_held_and_not_used_burn_their_idle_watts() -> None:
    ran = schedule([Came(request=(4.0, 8.0, 2.0))], [Ran(job=0, start_s=0.0, end_s=3600.0)], end_s=3600.0)

    found = unused_gpu_kwh(ran, known((1.0, 1.0, 0.5)), [power()], assumed=ASSUMED)

    assert found == pytest.approx(1.5 * 30.0 / 1000)


@given(ran=schedules())
def test_empty_seconds_are_those_in_which_nothing_runs(ran: Schedule) -> None:
    found = empty_spans(ran)

    host_run = np.repeat(np.arange(len(ran.job)), np.diff(ran.host_offsets))
    for machine in range(len(ran.machines)):
        runs = host_run[ran.hosts == machine]
        own = found.machine == machine
        for second in range(int(ran.end_s)):
            busy = ((ran.start_s[runs] <= second) & (second < ran.end_run_s[runs])).any()
            off = ((found.begin_s[own] <= second) & (second < found.end_s[own])).any()
            assert off == (not busy)


@given(ran=schedules(), seed=st.integers(0, 10_000))
def test_what_can_be_spared_is_a_part_of_the_account(ran: Schedule, seed: int) -> None:
    use, site = uses(ran.workload, np.random.default_rng(seed)), grid(seed)
    whole = account(ran, use, powers(ran.machines), site, START_TS, assumed=ASSUMED)

    off = spared(ran, powers(ran.machines), site, START_TS, off_after_s=0.0)
    unused = unused_gpu_kwh(ran, use, powers(ran.machines), assumed=ASSUMED)

    assert (off.machines.kwh <= whole.unallocated.kwh + 1e-9).all()
    assert off.hour_ts.tolist() == whole.hour_ts.tolist()
    for name in ("kwh", "carbon_g", "cost_usd"):
        assert getattr(off.hours, name).sum() == pytest.approx(getattr(off.machines, name).sum())
    assert -1e-9 <= unused <= whole.jobs_parts_kwh[:, 3].sum() + 1e-9


def test_a_wait_below_nothing_is_refused() -> None:
    with pytest.raises(BadInput, match="wait of -1"):
        spared(schedule([]), [power()], None, 0.0, off_after_s=-1.0)
