"""Recorded submissions through the simulator: as submitted, as long as recorded, and what is said of them."""

import json
import math
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import polars as pl
import pytest

from features.tables import Jobs
from pipelines.errors import BadUsage
from pipelines.simulation.advice import oracle_of, scales_of
from pipelines.simulation.cluster_file import ClusterSpec
from pipelines.simulation.job_pool import Pool, recorded_pool, submissions
from pipelines.simulation.settings import SimulationSettings
from pipelines.simulation.simulate import SimulationResult, simulate_recorded
from scheduler_core.cluster import Machine
from tests.pipelines.lake.canonical import altered, canonical, job_row, measured_tables

GOLDEN = Path(__file__).parents[2] / "golden" / "recorded_jobs.json"

EIGHT_GPUS = ClusterSpec(
    machines=(Machine(name="m", cpu_cores=0.0, mem_gib=0.0, gpus=8),),
    source="one machine",
    unstated=("cpu_cores", "mem_gib"),
)
UNTIL_DONE = SimulationSettings(horizon_s=math.inf, cluster=EIGHT_GPUS)


def pool_of(*rows: dict[str, Any]) -> Pool:
    jobs = canonical([job_row(at, **fields) for at, fields in enumerate(rows)], Jobs)
    _, usage = measured_tables(1)
    return recorded_pool(submissions(jobs).jobs, usage.clear())


def run(pool: Pool, chosen: SimulationSettings = UNTIL_DONE, *, oracle: bool = False) -> SimulationResult:
    return simulate_recorded(pool, scales_of(oracle_of(pool) if oracle else None, pool, chosen), chosen)


FIVE = (
    {"req_gpus": 8.0, "run_s": 7200.0, "user": "a"},
    {"req_gpus": 4.0, "run_s": 3600.0, "user": "b"},
    {"req_gpus": 4.0, "run_s": 600.0, "user": "b", "status": "failed"},
    {"req_gpus": 8.0, "run_s": 60.0, "user": "a"},
    {"req_gpus": 16.0, "run_s": 60.0, "user": "c"},
)
"""Submitted a minute apart, before one machine of eight GPUs; the last never fits."""


def test_recorded_jobs_run_as_recorded_and_failures_fail_again() -> None:
    [row] = run(pool_of(*FIVE)).rows

    assert (row["arm"], row["truth"], row["rate_per_h"]) == ("requested", "unchanged", None)
    assert (row["submitted"], row["never_fits"]) == (4, 1)
    assert (row["completed"], row["failed"], row["waiting"]) == (3, 1, 0)
    # fifo: 0..7200, then both of four GPUs, then the last of eight
    assert row["makespan_s"] == 7200.0 + 3600.0 + 60.0
    assert row["wait_mean_s"] == ((0.0) + (7200.0 - 60.0) + (7200.0 - 120.0) + (10800.0 - 180.0)) / 4


def test_assumptions_are_said() -> None:
    result = run(pool_of(*FIVE))

    assert result.notes == [
        "cluster (one machine): 1 machines, 8 GPUs, 0 cores, 0 GiB, GPU types not given; "
        "it does not state cpu_cores and mem_gib: not limited",
        "GPUs are pooled: a machine counts its GPUs together, not device by device",
        "blocked jobs are passed without bound, so small jobs overtake large ones; "
        "gangs whose request exceeds the whole cluster are counted as never_fits, outside the rates",
        "no job requests cpu_cores or mem_gib: only gpus are allocated",
        "1 jobs request more GPUs than a machine has: divided into equal instances",
        "the use of 5 of 5 jobs is unknown: they keep their requests",
    ]


def test_jobs_that_ask_for_what_the_machines_do_not_tell_are_refused() -> None:
    with pytest.raises(BadUsage, match="jobs request cpu_cores, which one machine does not state"):
        run(pool_of({"req_cpu_cores": 4.0}))


def test_measured_jobs_have_every_arm_and_truth() -> None:
    jobs, usage = measured_tables()
    pool = recorded_pool(submissions(altered(jobs, 4, status="failed")).jobs, usage)
    cluster = ClusterSpec(machines=(Machine(name="m", cpu_cores=96.0, mem_gib=512.0, gpus=8),), source="one machine")

    result = run(pool, replace(UNTIL_DONE, cluster=cluster), oracle=True)

    assert {(row["arm"], row["truth"]) for row in result.rows} == {
        (arm, truth) for arm in ("requested", "shrunk", "oracle") for truth in ("unchanged", "predicted", "contention")
    }
    for row in result.rows:
        assert (row["submitted"], row["completed"], row["failed"], row["killed"]) == (30, 29, 1, 0)
    waits = {str(row["arm"]): row["wait_mean_s"] for row in result.rows if row["truth"] == "contention"}
    assert waits["oracle"] < waits["shrunk"] < waits["requested"]  # type: ignore[operator]


def test_the_rows_are_the_golden_ones() -> None:
    assert json.loads(json.dumps(run(pool_of(*FIVE)).rows)) == json.loads(GOLDEN.read_text())


def test_jobs_of_several_clusters_are_never_one_queue() -> None:
    jobs = canonical([job_row(0), job_row(1, cluster="d")], Jobs)

    with pytest.raises(BadUsage, match="clusters c, d, expected one cluster: name it with --cluster"):
        submissions(jobs)
    assert submissions(jobs.filter(pl.col("cluster") == "d")).jobs.height == 1


def test_a_horizon_says_how_many_of_the_recorded_jobs_it_takes() -> None:
    pool = pool_of(*FIVE)

    cut = run(pool, replace(UNTIL_DONE, horizon_s=90.0))
    whole = run(pool, replace(UNTIL_DONE, horizon_s=3600.0))

    [said] = [note for note in cut.notes if "--since" in note]
    assert re.fullmatch(
        r"2 of 5 jobs within 0\.025 h of the first submission \(\d{4}-\d\d-\d\d \d\d:\d\d UTC\); "
        r"--since moves the start",
        said,
    )
    assert cut.rows[0]["submitted"] == 2
    assert not any("--since" in note for note in whole.notes)
