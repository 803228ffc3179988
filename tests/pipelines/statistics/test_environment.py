"""Power, temperature and errors of GPUs, worked by hand."""

from datetime import timedelta
from pathlib import Path

import pytest

from pipelines.lake.lake import Lake
from pipelines.statistics.machines import GPU_HOUR_DIMENSIONS, gpu_environment, gpu_power_by_use
from tests.pipelines.statistics.lakes import T0, Rows, job, make_lake

KEY: dict[str, object] = {"trace": "toy", "cluster": "c"}


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
