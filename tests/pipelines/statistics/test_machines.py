"""Machines, capacity, utilisation and files, worked by hand."""

from datetime import date, timedelta
from pathlib import Path

import pytest

from pipelines.errors import BadUsage
from pipelines.statistics.machines import (
    capacity,
    files,
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
