"""Accounts of kWh, grams and money: by hand, against a sum second by second, and compared with a base."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pipelines.simulation.energy.account import account, energy_figures
from pipelines.simulation.engine.schedule import Schedule
from pipelines.simulation.measures.job_metrics import Uses
from pipelines.simulation.measures.metrics import summarise
from scheduler_core.errors import BadInput
from scheduler_core.planning.hourly import Grid
from tests.pipelines.simulation.energy.sites import ASSUMED, START_TS, grid, hourly, known, power, powers, uses
from tests.pipelines.simulation.engine.schedules import Came, Ran, schedule, schedules


def test_one_job_on_one_machine_by_hand() -> None:
    # 8 cores, 4 GPUs; 2 h in all, the job holds 4 cores and 2 GPUs for the second hour, at 1 core and 1.5 GPUs.
    ran = schedule([Came(request=(4.0, 8.0, 2.0))], [Ran(job=0, start_s=3600.0, end_s=7200.0)], end_s=7200.0)
    site = Grid(zone="z", carbon=hourly([100.0, 400.0]), price=hourly([0.1, -0.2], "USD/kWh"), pue=1.5)

    found = account(ran, known((1.0, 1.0, 1.5)), [power()], site, 0.0, assumed=ASSUMED)

    idle_w, cpu_busy_w, gpu_busy_w = 40.0 + 4 * 30.0, 290.0 / 8, 1.5 * 270.0
    parts = [cpu_busy_w, gpu_busy_w, 40.0 * 4 / 8, 2 * 30.0]
    assert found.jobs.kwh[0] == pytest.approx(sum(parts) / 1000)
    assert found.jobs.carbon_g[0] == pytest.approx(sum(parts) / 1000 * 400.0 * 1.5)
    assert found.jobs.cost_usd[0] == pytest.approx(sum(parts) / 1000 * -0.2 * 1.5)
    assert found.total.kwh == pytest.approx((2 * idle_w + cpu_busy_w + gpu_busy_w) / 1000)
    assert found.total.carbon_g == pytest.approx(
        1.5 * (0.16 * 100.0 + (idle_w + cpu_busy_w + gpu_busy_w) / 1000 * 400.0)
    )


def test_unknown_use_is_assumed_and_said() -> None:
    ran = schedule([Came(), Came()], [Ran(job=0, start_s=0.0, end_s=100.0)])

    found = account(ran, known((math.nan, 1.0, math.nan), (1.0, 1.0, 1.0)), [power()], None, 0.0, assumed=ASSUMED)

    hours = 100.0 / 3600.0
    of_idle_w = 40.0 * 4 / 8 + 2 * 30.0
    assert found.jobs.kwh[0] == pytest.approx((290.0 * 0.25 * 4 / 8 + 270.0 * 0.5 * 2 + of_idle_w) * hours / 1000)
    assert math.isnan(found.total.carbon_g)


@given(ran=schedules(), seed=st.integers(0, 10_000), from_s=st.integers(0, 19))
def test_the_account_is_the_sum_second_by_second(ran: Schedule, seed: int, from_s: int) -> None:
    use, site = uses(ran.workload, np.random.default_rng(seed)), grid(seed)
    start_ts = START_TS - START_TS % 3600.0 + 3550.0  # the hour turns at 50 s

    found = account(ran, use, powers(ran.machines), site, start_ts, assumed=ASSUMED, from_s=float(from_s))

    slow = second_by_second(ran, use, site, start_ts, from_s)
    assert list(found.total) == pytest.approx(slow, rel=1e-9, abs=1e-12)
    assert (found.jobs.kwh >= 0.0).all()
    assert found.jobs.kwh.sum() <= found.total.kwh + 1e-9


def test_figures_of_other_machines_and_beginnings_after_the_end_are_refused() -> None:
    ran = schedule([], end_s=100.0, on=2)
    nobody = Uses(mean=np.empty((0, 3)))

    with pytest.raises(BadInput, match="figures of 1 machines, expected 2"):
        account(ran, nobody, [power()], None, 0.0, assumed=ASSUMED)
    with pytest.raises(BadInput, match="start at 101"):
        account(ran, nobody, powers(ran.machines), None, 0.0, assumed=ASSUMED, from_s=101.0)


def test_a_series_that_ends_before_the_simulation_is_refused() -> None:
    ran = schedule([], end_s=7201.0)
    site = Grid(zone="z", carbon=hourly([1.0, 2.0]))

    with pytest.raises(BadInput, match="longer series"):
        account(ran, Uses(mean=np.empty((0, 3))), [power()], site, 0.0, assumed=ASSUMED)


def second_by_second(ran: Schedule, use: Uses, site: Grid, start_ts: float, from_s: int) -> list[float]:
    """Sum whole seconds over machines and the runs there; all moments are whole."""
    sums = [0.0, 0.0, 0.0]
    asks_cores = bool(ran.workload.request_units[:, 0].any())
    for second in range(from_s, int(ran.end_s)):
        watts = sum(each.idle_w(machine.gpus) for each, machine in zip(powers(ran.machines), ran.machines, strict=True))
        for at in np.flatnonzero((ran.start_s <= second) & (second < ran.end_run_s)).tolist():
            watts += _busy_w(ran, use, at, asks_cores=asks_cores)
        kwh = watts / 3.6e6
        moment = start_ts + second
        for column, factor in enumerate((1.0, site.carbon.at(moment), site.price.at(moment))):
            sums[column] += kwh * factor * (site.pue if column else 1.0)
    return sums


def _busy_w(ran: Schedule, use: Uses, at: int, *, asks_cores: bool) -> float:
    job, machine = int(ran.job[at]), int(ran.hosts[at])
    jobs, node = ran.workload, powers(ran.machines)[machine]
    held = (jobs.request_units if ran.full[at] else jobs.granted_units)[job]
    stretch = 1.0 if ran.full[at] else jobs.granted_run_s[job] / jobs.run_s[job]
    drawn = []
    for resource, assumed in ((0, ASSUMED.cpu_frac), (2, ASSUMED.gpu_frac)):
        mean = use.mean[job, resource] / stretch
        drawn.append(held[resource] * assumed if math.isnan(mean) else min(mean, held[resource]))
    cores = drawn[0] / 1000 / 8 if asks_cores else held[2] / 1000 / 4 * ASSUMED.cpu_frac
    return cores * (node.cpu_full_w - node.cpu_idle_w) + drawn[1] / 1000 * (node.gpu_full_w - node.gpu_idle_w)


HOUR_S = 3600.0


def figures(gpus_used: float, base_gpus_used: float, price: float = 0.1) -> dict[str, float]:
    """Return the figures of an hour of one job on 2 GPUs, 160 W idle beside it, against another use of them."""
    site = Grid(zone="z", carbon=hourly([200.0]), price=hourly([price], "USD/kWh"), pue=1.0)
    ran = schedule([Came(request=(4.0, 8.0, 2.0))], [Ran(job=0, start_s=0.0, end_s=HOUR_S)], end_s=HOUR_S)
    found, base = (
        account(ran, known((0.0, 1.0, each)), [power()], site, 0.0, assumed=ASSUMED)
        for each in (gpus_used, base_gpus_used)
    )
    return energy_figures(found, summarise(ran), base, summarise(ran), grid=True)


@pytest.mark.parametrize(("used", "base"), [(0.5, 2.0), (2.0, 0.5), (1.0, 1.0)])
def test_less_than_the_base_is_saved_and_more_is_lost(used: float, base: float) -> None:
    found = figures(used, base)

    saved = 270.0 * (base - used) / (160.0 + 270.0 * base)
    for what in ("energy", "carbon", "cost"):
        assert found[f"{what}_saved_frac"] == pytest.approx(saved)
        assert found[f"{what}_per_finished_saved_frac"] == pytest.approx(saved)


def test_where_the_base_earns_money_earning_less_is_a_loss() -> None:
    found = figures(0.5, 2.0, price=-0.1)

    assert found["energy_saved_frac"] == pytest.approx(270.0 * 1.5 / 700.0)
    assert found["cost_saved_frac"] == pytest.approx(-270.0 * 1.5 / 700.0)
