"""A site in simulations: hand-worked figures, and when on the grid it is."""

import math
from datetime import UTC, datetime
from typing import Any

import numpy as np
import pytest

from features.tables import Jobs
from pipelines.errors import BadUsage
from pipelines.simulation.cluster_file import ClusterSpec
from pipelines.simulation.energy.power_file import power_file
from pipelines.simulation.energy.site import Site, start_on
from pipelines.simulation.job_pool import Pool, recorded_pool, submissions
from pipelines.simulation.settings import SimulationSettings
from pipelines.simulation.simulate import simulate_recorded
from scheduler_core.cluster import Machine
from scheduler_core.planning.hourly import Grid
from tests.pipelines.lake.canonical import canonical, job_row, measured_tables
from tests.pipelines.simulation.energy.sites import hourly

T4S = ClusterSpec(
    machines=(Machine(name="m", cpu_cores=0.0, mem_gib=0.0, gpus=4, gpu_type="T4"),),
    source="one machine",
    unstated=("cpu_cores", "mem_gib"),
)
TWO = ({"req_gpus": 2.0, "run_s": 7200.0}, {"req_gpus": 4.0, "run_s": 3600.0})
"""Submitted a minute apart: the second waits for the first."""

DAY = [200.0] * 2 + [100.0] * 2 + [300.0] * 20


def grid(**fields: Any) -> Grid:
    return Grid(
        zone="Z",
        carbon=hourly(DAY * 3, wrap=True),
        price=hourly(np.array(DAY * 3) / -1000.0, "USD/kWh", wrap=True),
        **{"pue": 1.5, **fields},
    )


def pool_of(*rows: dict[str, Any]) -> Pool:
    jobs = canonical([job_row(at, **fields) for at, fields in enumerate(rows)], Jobs)
    return recorded_pool(submissions(jobs).jobs, measured_tables(1)[1].clear())


def test_figures_of_two_jobs_by_hand() -> None:
    site = Site(table=power_file(), grid=grid())
    [row] = simulate_recorded(pool_of(*TWO), {}, SimulationSettings(horizon_s=math.inf, cluster=T4S, site=site)).rows

    # Two CPUs of 20 to 165 W and four GPUs of 10 to 70 W; 26 and 52 % of what is held is used, 2 h half of it, 1 h all.
    first = 0.26 * 290 / 2 + 0.52 * 2 * 60
    second = 0.26 * 290 + 0.52 * 4 * 60
    hours = [(80 + first) / 1000, (80 + first) / 1000, (80 + second) / 1000]
    grams = 1.5 * (hours[0] * 200 + hours[1] * 200 + hours[2] * 100)
    assert row["energy_kwh"] == pytest.approx(sum(hours))
    assert row["energy_unallocated_kwh"] == pytest.approx(2 * 40 / 1000)
    assert row["energy_kwh_per_finished"] == pytest.approx(sum(hours) / 2)
    assert row["carbon_kg"] == pytest.approx(grams / 1000)
    assert row["cost_usd"] == pytest.approx(-grams / 1000)
    assert row["carbon_jobs_g_per_kwh"] == pytest.approx(
        1.5 * (2 * (40 + first) * 200 + (80 + second) * 100) / (2 * (40 + first) + 80 + second)
    )
    assert row["carbon_job_mean_g_per_kwh"] == pytest.approx(1.5 * (200 + 100) / 2)
    assert (row["zone"], row["pue"], row["carbon_saved_frac"]) == ("Z", 1.5, 0.0)


@pytest.mark.parametrize(
    ("told", "first", "begins"),
    [
        (None, None, datetime(2023, 1, 1, tzinfo=UTC)),
        (None, datetime(2017, 8, 24, 9, 0, 28, tzinfo=UTC), datetime(2023, 8, 24, 9, 0, 28, tzinfo=UTC)),
        (None, datetime(2020, 2, 29, 5, tzinfo=UTC), datetime(2023, 3, 1, 5, tzinfo=UTC)),
        (datetime(2023, 7, 1, 6, tzinfo=UTC), datetime(2017, 8, 24, tzinfo=UTC), datetime(2023, 7, 1, 6, tzinfo=UTC)),
    ],
)
def test_a_simulation_begins_on_the_grid(told: datetime | None, first: datetime | None, begins: datetime) -> None:
    new_year = datetime(2023, 1, 1, tzinfo=UTC).timestamp()
    year = Grid(zone="Z", price=hourly(np.zeros(8760), "USD/kWh", start_s=new_year))

    found, said = start_on(year, told, None if first is None else first.timestamp())

    assert datetime.fromtimestamp(found, UTC) == begins
    assert f"{begins:%Y-%m-%d %H:%M}" in said
    assert "from 2024-01-01 00:00 on its hours repeat from the first" in said


def test_the_turn_of_the_year_lies_in_the_next_one() -> None:
    autumn = datetime(2022, 10, 1, tzinfo=UTC).timestamp()
    winter = Grid(zone="Z", carbon=hourly(np.ones(24 * 200), start_s=autumn))

    assert (
        start_on(winter, None, datetime(2017, 2, 1, tzinfo=UTC).timestamp())[0]
        == datetime(2023, 2, 1, tzinfo=UTC).timestamp()
    )
    with pytest.raises(BadUsage, match=r"found the start 2022-06-01 00:00 UTC .*; name one with grid_start"):
        start_on(winter, None, datetime(2017, 6, 1, tzinfo=UTC).timestamp())
