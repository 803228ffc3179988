"""The report's section on energy: machines by type, and idle GPUs, worked by hand."""

from dataclasses import replace
from datetime import timedelta
from pathlib import Path

import polars as pl
import pytest

from pipelines.report.energy import energy, machine_energy
from pipelines.report.parts import Note, Traces
from pipelines.simulation.energy.power_file import power_file
from pipelines.simulation.energy.site import Meters
from scheduler_core.cluster import Machine
from scheduler_core.planning.hourly import Grid
from tests.pipelines.report.tiny import JOBS, tables, tiny_lake
from tests.pipelines.simulation.energy.sites import hourly
from tests.pipelines.statistics.lakes import T0, make_lake, ran

T4_IDLE_W, T4_FULL_W = 10.0, 70.0
CPU_IDLE_W = 2 * 20.0
"""Of a machine that tells no cores: two CPUs of the model that goes with a T4."""


@pytest.fixture(scope="module")
def traces(tmp_path_factory: pytest.TempPathFactory) -> Traces:
    return Traces(lake=tiny_lake(tmp_path_factory.mktemp("lake")), names=("toy", "bare"))


def meters(*, price: bool = True) -> Meters:
    series = hourly([100.0] * 12 + [300.0] * 12 + [200.0] * 12)
    grid = Grid(zone="Z", carbon=series, price=hourly([0.1] * 36, "USD/kWh") if price else None, pue=1.5)
    return Meters(table=power_file(), grids=(grid,), notes=("a made-up grid",))


def test_machines_draw_idle_watts_and_what_measured_use_adds(traces: Traces) -> None:
    found = tables([energy(traces, meters())])["energy_by_machine"].rows.row(0, named=True)

    use = sum(hour / 50 for hour in range(48)) / 48
    assert (found["machines"], found["machine_hours"], found["measured_kwh"]) == (1, 48, 0.0)
    assert found["idle_kwh"] == pytest.approx(48 * (CPU_IDLE_W + 2 * T4_IDLE_W) / 1000)
    assert found["busy_kwh"] == pytest.approx(48 * use * 2 * (T4_FULL_W - T4_IDLE_W) / 1000)


def test_cpus_in_use_draw_what_cpus_draw(traces: Traces) -> None:
    told = {"cluster": "c", "machine": "m1", "machine_type": "T4", "machine_hours": 10.0}
    samples = [told | {"resource": "gpu", "mean_frac": 0.0}, told | {"resource": "cpu", "mean_frac": 0.5}]

    found = machine_energy(pl.DataFrame(samples), traces, "toy", power_file()).row(0, named=True)

    node = power_file().node(Machine(name="m1", cpu_cores=0.0, mem_gib=0.0, gpus=2, gpu_type="T4"))
    assert found["busy_kwh"] == pytest.approx(10.0 * 0.5 * (node.cpu_full_w - node.cpu_idle_w) / 1000)


def test_measured_power_replaces_that_of_the_gpu_hours_that_it_covers(tmp_path: Path) -> None:
    where = {"trace": "live", "cluster": "c", "machine": "m1"}
    hours = [where | {"ts": T0 + timedelta(hours=at)} for at in range(4)]
    tables_of = {
        "jobs": [ran(0, 60.0)],
        "machines": [where | {"gpu_type": "T4", "gpus": 2}, where | {"machine": "m2", "gpu_type": "T4", "gpus": 2}],
        "machine_usage": [each | {"gpu_frac": 0.5} for each in (*hours, hours[0] | {"machine": "m2"})],
        "environment": [
            *(each | {"device": "0", "energy_j": 41.0 * 3600, "coverage_frac": 1.0} for each in hours),
            hours[0] | {"device": "1", "energy_j": 45.0 * 1800, "coverage_frac": 0.5},
            hours[1] | {"device": "1", "coverage_frac": 1.0},  # temperature only
        ],
    }
    made = energy(Traces(lake=make_lake(tmp_path, tables_of, trace="live"), names=("live",)), meters())

    found = tables([made])["energy_by_machine"].rows.row(0, named=True)
    modelled_h = 2 * 4 + 2 - 4.5  # GPU-hours of both machines, without those measured
    assert found["measured_share"] == pytest.approx(4.5 / 10)
    assert found["measured_kwh"] == pytest.approx((4 * 41.0 + 0.5 * 45.0) / 1000)
    assert found["idle_kwh"] == pytest.approx((5 * CPU_IDLE_W + modelled_h * T4_IDLE_W) / 1000)
    assert found["busy_kwh"] == pytest.approx(modelled_h * 0.5 * (T4_FULL_W - T4_IDLE_W) / 1000)


def test_gpus_that_nobody_used_burn_their_idle_watts(traces: Traces) -> None:
    section = energy(traces, meters())

    row = tables([section])["idle_gpus-Z"].rows.row(0, named=True)
    hours = [60.0 * (1 + at % 7) / 3600 * (1 + at % 3) for at in range(JOBS)]
    slack_h = sum(((0.5, 1.0, 2.0)[at % 3] - 0.1) * each for at, each in enumerate(hours))
    assert row["slack_h"] == pytest.approx(slack_h)
    assert row["idle_kwh"] == pytest.approx(slack_h * T4_IDLE_W / 1000)
    assert row["carbon_kg"] == pytest.approx(row["idle_kwh"] * 1.5 * 200.0 / 1000)
    assert row["cost_usd"] == pytest.approx(row["idle_kwh"] * 1.5 * 0.1)


def test_what_types_unknown_to_the_table_are_taken_as_is_said(traces: Traces) -> None:
    site = meters()
    bare = replace(site, table=site.table.model_copy(update={"gpus": {"V100": site.table.gpus["V100"]}}))

    said = " | ".join(part.text for part in energy(traces, bare).parts if isinstance(part, Note))

    assert "toy: 1 of 1 machines have no GPU type of the table: taken as V100" in said
    assert "tasks have no GPU type of the table: idle draw assumed as of V100" in said
    assert "taken as V100" not in " | ".join(part.text for part in energy(traces, site).parts if isinstance(part, Note))


def test_a_grid_without_prices_tells_carbon_alone(traces: Traces) -> None:
    section = energy(traces, meters(price=False))

    assert tables([section])["idle_gpus-Z"].rows.columns[-1] == "carbon_kg"


def test_traces_that_tell_nothing_are_named(traces: Traces, tmp_path: Path) -> None:
    bare = Traces(lake=tiny_lake(tmp_path), names=("bare",))

    section = energy(bare, meters())

    assert not tables([section])
