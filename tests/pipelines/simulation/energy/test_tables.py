"""Figures of energy of a row: what is saved against a base, by hand, with its sign."""

import pytest

from pipelines.simulation.energy.account import account
from pipelines.simulation.energy.tables import energy_figures
from pipelines.simulation.measures.metrics import summarise
from scheduler_core.planning.grid import Grid
from tests.pipelines.simulation.energy.sites import ASSUMED, hourly, known, power
from tests.pipelines.simulation.engine.schedules import Came, Ran, schedule

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
