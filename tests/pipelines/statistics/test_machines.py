"""Machines, capacity, utilisation, files, and GPUs as their exporters measured them, worked by hand."""

from datetime import date, timedelta
from pathlib import Path

import pytest

from pipelines.errors import BadUsage
from pipelines.lake.lake import Lake
from pipelines.statistics.machines import (
    GPU_HOUR_DIMENSIONS,
    capacity,
    files,
    gpu_environment,
    gpu_power_by_use,
    machine_classes,
    utilisation_by_hour,
    utilisation_by_machine_type,
)
from tests.pipelines.statistics.lakes import T0, Rows, job, make_lake

KEY: dict[str, object] = {"trace": "toy", "cluster": "c"}
MACHINES: Rows = [
    {**KEY, "machine": "m1", "gpu_type": "T4", "cpu_cores": 96.0, "gpus": 2},
    {**KEY, "machine": "m2", "gpu_type": "T4", "cpu_cores": 96.0, "gpus": 2},
    {**KEY, "machine": "m3", "gpus": 8, "gpu_mem_gib": 24.0},
]


def sample(machine: str, minute: int, **fields: object) -> dict[str, object]:
    return {**KEY, "machine": machine, "ts": T0 + timedelta(minutes=minute), **fields}


def test_classes_of_machines(tmp_path: Path) -> None:
    rows = machine_classes(make_lake(tmp_path, {"jobs": [job(0)], "machines": MACHINES}), "toy")
    assert rows.rows() == [("T4", 96.0, None, 2, None, 2, 4), (None, None, None, 8, 24.0, 1, 8)]


def test_capacity_is_of_all_virtual_clusters_on_a_date(tmp_path: Path) -> None:
    rows: Rows = [
        {**KEY, "vc": vc, "date": date(2020, 4, day), "gpus": gpus}
        for vc, day, gpus in [("a", 1, 8), ("b", 1, 16), ("a", 2, 8), ("b", 2, 24)]
    ]
    lake = make_lake(tmp_path, {"jobs": [job(0)], "capacity": rows})
    assert capacity(lake, "toy").rows() == [(2, "2020-04-01", "2020-04-02", 28.0, 24, 32)]
    by_vc = capacity(lake, "toy", by="vc")
    assert by_vc.select("vc", "mean_gpus").rows() == [("a", 8.0), ("b", 20.0)]
    by_date = capacity(lake, "toy", by="date")
    assert by_date.select("date", "days", "mean_gpus").rows() == [("2020-04-01", 1, 24.0), ("2020-04-02", 1, 32.0)]


def test_a_machine_hour_weighs_one_however_often_it_was_sampled(tmp_path: Path) -> None:
    busy = [sample("m1", minute, gpu_frac=1.0) for minute in range(50)]
    idle = [sample("m2", 0, gpu_frac=0.0, cpu_frac=0.5), sample("m2", 61, gpu_frac=0.25)]
    lake = make_lake(tmp_path, {"jobs": [job(0)], "machines": MACHINES, "machine_usage": [*busy, *idle]})
    rows = utilisation_by_hour(lake, "toy")
    assert rows.select("hour", "resource", "machines", "machine_hours", "samples", "mean_frac").rows() == [
        (0, "cpu", 1, 1, 1, 0.5),
        (0, "gpu", 2, 2, 51, 0.5),
        (1, "gpu", 1, 1, 1, 0.25),
    ]
    assert rows.filter(hour=0, resource="gpu")["p50_frac"].to_list() == [0.5]


def test_hours_of_machines_are_local_and_split_by_weekday(tmp_path: Path) -> None:
    lake = make_lake(
        tmp_path, {"jobs": [job(0)], "machine_usage": [sample("m1", 0, cpu_frac=0.5)]}, zone="America/Los_Angeles"
    )
    rows = utilisation_by_hour(lake, "toy", by="weekday")  # Tuesday, 17:00 in Los Angeles
    assert rows.select("weekday", "hour", "mean_frac").rows() == [(2, 17, 0.5)]


def test_types_fall_back_to_what_the_list_tells(tmp_path: Path) -> None:
    use = [sample("m1", 0, cpu_frac=0.2), sample("m3", 0, cpu_frac=0.4), sample("m9", 0, cpu_frac=0.6)]
    lake = make_lake(tmp_path, {"jobs": [job(0)], "machines": MACHINES, "machine_usage": use})
    rows = utilisation_by_machine_type(lake, "toy")
    assert rows.select("machine_type", "mean_frac").rows() == [("8 GPUs of 24 GiB", 0.4), ("T4", 0.2), ("unknown", 0.6)]


def test_files_are_those_of_the_manifest(tmp_path: Path) -> None:
    lake = make_lake(tmp_path, {"jobs": [job(0)]}, raw={("c", "task"): 9, ("d", "task"): 4})
    assert files(lake, "toy").rows() == [
        ("c", "task", "c/task.csv", 7, "ab" * 32, 9, 0),
        ("d", "task", "d/task.csv", 7, "ab" * 32, 4, 0),
    ]
    assert files(lake, "toy", cluster="d")["rows_in"].to_list() == [4]
    with pytest.raises(BadUsage, match="expected one of none"):
        files(lake, "toy", by="cluster")


def gpu(machine: str, device: str, hour: int, watts: float, **fields: object) -> dict[str, object]:
    """Return an hour of a GPU with `watts` all the time."""
    where = {**KEY, "machine": machine, "device": device, "ts": T0 + timedelta(hours=hour), "gpu_type": "T4"}
    return where | {"power_w": watts, "energy_j": watts * 3600, "coverage_frac": 1.0, "xid_changes": 0} | fields


@pytest.fixture
def lake(tmp_path: Path) -> Lake:
    """Return three GPUs on two machines, one of them sampled for half an hour, with an error."""
    hours: Rows = [
        gpu("m1", "0", 0, 10.0, power_max_w=12.0, temp_c=30.0, temp_max_c=31.0),
        gpu("m1", "1", 0, 30.0, power_max_w=70.0, temp_c=50.0, temp_max_c=66.0),
        gpu("m1", "0", 1, 40.0),
        gpu("m1", "1", 1, 60.0),
        gpu("m2", "0", 1, 70.0, coverage_frac=0.5, energy_j=70.0 * 1800, xid_changes=2),
    ]
    busy: Rows = [
        {**KEY, "machine": machine, "ts": T0 + timedelta(hours=hour), "gpu_frac": frac}
        for machine, hour, frac in (("m1", 0, 0.0), ("m1", 1, 0.6), ("m2", 1, 1.0), ("m3", 1, 1.0))
    ]
    return make_lake(tmp_path, {"jobs": [job(0)], "environment": hours, "machine_usage": busy}, zone="Asia/Shanghai")


def test_power_is_weighted_by_the_time_that_samples_cover(lake: Lake) -> None:
    row = gpu_environment(lake, "toy").row(0, named=True)
    assert (row["gpus"], row["gpu_hours"], row["sampled_h"]) == (3, 5, 4.5)
    assert row["energy_kwh"] == pytest.approx((10 + 30 + 40 + 60 + 35) / 1000)
    assert row["mean_w"] == pytest.approx((10 + 30 + 40 + 60 + 35) / 4.5)
    assert (row["p50_w"], row["max_w"], row["mean_c"], row["max_c"]) == (40.0, 70.0, 40.0, 66.0)
    assert (row["xid_hours"], row["xid_gpus"]) == (1, 1)


def test_hours_are_local(lake: Lake) -> None:
    rows = gpu_environment(lake, "toy", by="hour")
    assert rows.select("hour", "gpus", "energy_kwh").rows() == [(8, 2, 0.04), (9, 3, 0.135)]


@pytest.mark.slow
@pytest.mark.parametrize("name", GPU_HOUR_DIMENSIONS)
def test_a_split_loses_no_hour(lake: Lake, name: str) -> None:
    assert gpu_environment(lake, "toy", by=name)["gpu_hours"].sum() == 5


def test_idle_and_full_power_are_fitted_over_machine_hours(lake: Lake) -> None:
    row = gpu_power_by_use(lake, "toy").row(0, named=True)
    assert (row["gpu_type"], row["machines"], row["machine_hours"]) == ("T4", 2, 3)
    assert (row["idle_w"], row["full_w"], row["r2"]) == pytest.approx((20.0, 70.0, 1.0))


def test_the_power_of_hours_that_are_equally_busy_is_not_fitted(lake: Lake) -> None:
    rows = gpu_power_by_use(lake, "toy", by="machine")
    assert rows.filter(machine="m2").select("idle_w", "full_w").rows() == [(None, None)]
