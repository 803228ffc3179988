"""Readings of a cluster's size from what a lake tells, and nothing where it tells nothing."""

from datetime import date, timedelta

import polars as pl
import pytest

from features.tables import Capacity, Jobs, Machines
from pipelines.errors import BadUsage, LakeError
from pipelines.studies.replay.capacity import (
    Reading,
    offered_gpus,
    readings_of,
)
from tests.pipelines.lake.canonical import T0, canonical, job_row


def jobs_of(*rows: dict[str, object]) -> pl.DataFrame:
    return canonical([job_row(at, **fields) for at, fields in enumerate(rows)], Jobs)


def readings(
    jobs: pl.DataFrame, *names: str, loads: tuple[float, ...] = (0.9,), **tables: pl.DataFrame
) -> list[Reading]:
    held = {"machines": Machines.create_empty(), "capacity": Capacity.create_empty()} | tables

    class Lake:
        def table(self, name: str, *_: object) -> pl.LazyFrame:
            return held[name].lazy()

    return readings_of(Lake(), jobs, since=T0, loads=loads, names=names)  # type: ignore[arg-type]  # the part that is used


def machines(cluster: str, *gpus: int) -> pl.DataFrame:
    rows = [{"trace": "t", "cluster": cluster, "machine": f"m{i}", "gpus": count} for i, count in enumerate(gpus)]
    return canonical(rows, Machines)


def capacity(*rows: tuple[str, int, int]) -> pl.DataFrame:
    """Return the capacity of (VC, day of July, GPUs) of the cluster `c`."""
    return canonical(
        [{"trace": "toy", "cluster": "c", "vc": v, "date": date(2020, 7, d), "gpus": g} for v, d, g in rows], Capacity
    )


def test_the_machine_list_is_one_pool_of_its_machines() -> None:
    [reading] = readings(jobs_of({}), "machine_list", machines=machines("c", 2, 8))

    assert [(pool.vc, [m.gpus for m in pool.machines]) for pool in reading.pools] == [(None, [2, 8])]


def test_a_reading_that_the_lake_has_no_data_for_is_refused_with_the_one_that_needs_none() -> None:
    with pytest.raises(LakeError, match=r"no reading vc_table of the cluster c.*take the reading load"):
        readings(jobs_of({}), "vc_table", machines=machines("c", 2, 8))


def test_vcs_of_the_capacity_table_are_pools_of_their_own_whatever_cluster_the_log_is_of() -> None:
    days = capacity(("v", 1, 16), ("w", 1, 8), ("other", 1, 64))
    jobs = jobs_of({"cluster": "slice", "vc": "v"}, {"cluster": "slice", "vc": "w"})

    [reading] = readings(jobs, "vc_table", capacity=days)

    assert [(pool.vc, pool.gpus) for pool in reading.pools] == [("v", 16), ("w", 8)]


def test_days_that_the_log_does_not_cover_say_nothing_of_its_vcs() -> None:
    days = capacity(("v", 1, 16), ("v", 8, 800), ("v", 9, 800))

    [reading] = readings(jobs_of({"vc": "v"}), "vc_table", capacity=days)

    assert [(pool.vc, pool.gpus) for pool in reading.pools] == [("v", 16)]


def test_a_vc_that_the_table_lacks_leaves_no_reading_by_table() -> None:
    jobs = jobs_of({"vc": "v", "req_gpus": 9.0}, {"vc": "w"})

    names = [reading.name for reading in readings(jobs, capacity=capacity(("v", 1, 16)))]

    assert names == ["load_0.9"]


def test_a_load_is_offered_by_the_measured_jobs() -> None:
    two_days = {"submit_ts": T0 + timedelta(days=2), "run_s": 86_400.0, "req_gpus": 72.0}
    jobs = jobs_of({"run_s": 86_400.0, "req_gpus": 72.0}, two_days)

    found = readings(jobs, "load", loads=(0.9, 0.5))

    assert offered_gpus(jobs, T0) == 72.0
    assert [(r.name, r.pools[0].gpus) for r in found] == [("load_0.9", 80), ("load_0.5", 144)]
    assert all("NOT THE TRACE'S CLUSTER" in reading.note for reading in found)


def test_jobs_before_the_measured_ones_offer_no_load() -> None:
    jobs = jobs_of(
        {"run_s": 86_400.0, "req_gpus": 500.0},
        {"submit_ts": T0 + timedelta(days=5), "run_s": 86_400.0, "req_gpus": 8.0},
        {"submit_ts": T0 + timedelta(days=7), "run_s": 86_400.0, "req_gpus": 8.0},
    )

    assert offered_gpus(jobs, T0 + timedelta(days=5)) == 8.0


def test_an_unknown_reading_is_refused_by_name() -> None:
    with pytest.raises(BadUsage, match="no reading guess; there are machine_list"):
        readings(jobs_of({}), "guess")
