"""Tables 1 to 3 beside a pool, classes of groups, and the bound of a round against an enumeration."""

from dataclasses import replace
from datetime import datetime
from itertools import product

import numpy as np
import polars as pl
import pytest

from pipelines.simulation.advice import REQUESTED
from pipelines.studies.shrinking.published import classes, most_placed, round_rows, table_1, table_2, table_3
from scheduler_core.cluster import Machine
from scheduler_core.types import Reason, Recommendation, Request
from tests.pipelines.studies.shrinking.tiny import plan, pool

POOL = pool()


def test_use_of_each_type_stands_beside_table_1_with_the_workloads_behind_it() -> None:
    named = POOL.frame.with_columns(workload=pl.lit("bert"), used_gpus=pl.lit(0.25))
    rows = {(row["task_type"], row["measure"]): row for row in table_1(replace(POOL, frame=named))}

    assert len(rows) == 12
    nlp = rows["nlp", "used_gpus"]
    assert (nlp["paper"], nlp["found"], nlp["paper_type"], nlp["workloads"]) == (34.1, 25.0, "NMT", "10 bert")


def test_table_2_counts_gpus_and_days_of_the_studied_trace_alone() -> None:
    jobs = pl.DataFrame({"submit_ts": [datetime(2020, 7, 1), datetime(2020, 7, 31, 12)]})
    found = {(row["of"], row["what"]): row for row in table_2(jobs, pl.DataFrame({"gpus": [8, 2, None]}), "pai-toy")}

    assert (found["pai", "GPUs"]["paper"], found["pai", "GPUs"]["found"]) == ("6742", 10.0)
    assert found["pai", "days"]["found"] == 30.5
    assert found["helios", "GPUs"]["found"] is None


def test_errors_of_table_3_are_out_of_fold_and_weighted_by_the_run_times() -> None:
    rows = table_3(POOL, folds=2, seed=0, threads=1)

    assert {(row["model"], row["task_type"]) for row in rows} == set(
        product(("xgboost", "random_forest"), ("ctr", "cv", "nlp"))
    )
    hours = {
        kind: np.mean([each.measured.run_s for each in POOL.jobs if each.job.task_type == kind]) / 3600.0
        for kind in ("ctr", "cv", "nlp")
    }
    for row in rows:
        assert row["mae_h"] == pytest.approx(float(str(row["wmape"])) * hours[str(row["task_type"])])
        assert float(str(row["mae_h"])) > 0.0


def test_a_group_is_named_after_the_resource_of_which_it_uses_most_of_a_machine() -> None:
    used = POOL.frame.with_columns(used_cpu_cores=pl.lit(1.0), mem_avg_gib=pl.lit(1.0), used_gpus=pl.lit(0.0))
    gpu = used.with_columns(used_gpus=pl.when(pl.col("task_type") == "nlp").then(0.5).otherwise(0.0))
    rows = {row["task_type"]: row for row in classes(replace(POOL, frame=gpu))}

    assert rows["nlp"]["gpu_intensive"] == rows["nlp"]["groups"]
    assert rows["ctr"]["cpu_intensive"] == rows["ctr"]["groups"]


def test_the_bound_of_a_round_is_above_all_placements_by_less_than_one_job_a_machine() -> None:
    machines = [
        Machine(name="a", cpu_cores=4.0, mem_gib=8.0, gpus=1),
        Machine(name="b", cpu_cores=2.0, mem_gib=8.0, gpus=0),
    ]
    rng = np.random.default_rng(1)
    for _ in range(20):
        demands = np.column_stack([rng.integers(1, 4, 5), rng.integers(1, 6, 5), rng.integers(0, 3, 5) / 2.0]).astype(
            float
        )
        most = 0
        for places in product((-1, 0, 1), repeat=5):
            held = [demands[np.array(places) == at].sum(axis=0) for at in (0, 1)]
            rooms = [(each.cpu_cores, each.mem_gib, each.gpus) for each in machines]
            if all((use <= np.array(room) + 1e-9).all() for use, room in zip(held, rooms, strict=True)):
                most = max(most, sum(place >= 0 for place in places))
        assert most <= most_placed(demands, machines) <= most + len(machines)
    assert most_placed(np.array([[1.0, 1.0, 0.0]] * 9), machines) == 6.0


def test_a_greedy_round_places_at_most_the_bound_and_smaller_requests_place_more() -> None:
    requests = [Recommendation.unchanged(entry.job, Reason.SHRUNK) for entry in POOL.jobs]
    small = [replace(each, target=Request(cpu_cores=0.5, mem_gib=0.5, gpus=0.05)) for each in requests]
    one = plan(POOL)
    rows = round_rows(
        replace(one, populations=dict(list(one.populations.items())[:1])), {REQUESTED: requests, "small": small}, [0, 1]
    )

    found = {row["arm"]: row for row in rows}
    for row in found.values():
        assert float(str(row["placed"])) <= float(str(row["bound"])) <= float(str(row["waiting"]))
    assert float(str(found["small"]["placed"])) > float(str(found["requested"]["placed"]))
