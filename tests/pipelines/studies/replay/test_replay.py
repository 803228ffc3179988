"""Small replays worked by hand: who waits for whom, what is measured, and when all orders are one."""

from datetime import datetime, timedelta

import numpy as np
import polars as pl
import pytest

from features.tables import Jobs
from pipelines.errors import LakeError
from pipelines.studies.replay.capacity import Pool, Reading
from pipelines.studies.replay.replay import ORDERS, Outcome, planned, replay, replayed
from pipelines.studies.replay.sizes import ORACLE, PREDICTED, Sizes
from scheduler_core.cluster import Machine
from tests.pipelines.lake.canonical import T0, canonical, job_row


def jobs_of(*rows: tuple[float, float, float, str]) -> pl.DataFrame:
    """Return jobs of (submitted in second, run seconds, GPUs, VC)."""
    made = []
    for i, (second, run_s, gpus, vc) in enumerate(rows):
        submit = T0 + timedelta(seconds=second)
        end = submit + timedelta(seconds=run_s)
        made.append(
            job_row(i, submit_ts=submit, start_ts=submit, end_ts=end, run_s=run_s, req_gpus=gpus, vc=vc, queue_s=None)
        )
    return canonical(made, Jobs)


def reading(*pools: tuple[str | None, int]) -> Reading:
    def machines(gpus: int) -> tuple[Machine, ...]:
        return tuple(Machine(name=f"m{i}", cpu_cores=0.0, mem_gib=0.0, gpus=8) for i in range(gpus // 8))

    return Reading(
        name="test", basis="chosen", pools=tuple(Pool(vc=vc, machines=machines(g)) for vc, g in pools), note=""
    )


def run(jobs: pl.DataFrame, size: Reading, *orders: str, since: datetime = T0, **sizes: list[float]) -> list[Outcome]:
    taken, _ = replayed(jobs)
    known = {ORACLE: taken["run_s"].to_numpy()} | {name: np.array(column) for name, column in sizes.items()}
    plan = planned({name: ORDERS[name] for name in orders}, list(known), everywhere=True)
    found = Sizes(predicted_s=known, predicted_p90_s=known, since=since, notes=())
    return list(replay(taken, found, size, plan, restart_cost_s=60.0))


def jcts(outcomes: list[Outcome]) -> dict[tuple[str, str], list[float]]:
    return {(o.order, o.sizes): o.jct_s.tolist() for o in outcomes}


QUEUE = jobs_of((0, 1000, 8, "v"), (10, 500, 8, "v"), (20, 100, 8, "v"))


def test_orders_follow_the_sizes_they_are_given() -> None:
    outcomes = run(QUEUE, reading((None, 8)), "sjf", predicted=[1.0, 2.0, 3.0])

    assert jcts(outcomes) == {
        ("fifo", "none"): [1000.0, 1490.0, 1580.0],
        ("sjf", "predicted"): [1000.0, 1490.0, 1580.0],
        ("sjf", "oracle"): [1000.0, 1590.0, 1080.0],
    }


def test_a_gang_larger_than_a_machine_is_divided_and_one_beyond_the_pool_never_fits() -> None:
    (outcome,) = run(jobs_of((0, 100, 16, "v"), (1, 100, 24, "v")), reading((None, 16)))

    assert outcome.jct_s[0] == 100.0
    assert np.isnan(outcome.jct_s[1])


def test_where_nobody_waits_under_fifo_every_order_is_fifo() -> None:
    outcomes = run(QUEUE, reading((None, 24)), "sjf", "srtf", "las", "fifo+easy")

    assert {tuple(column) for column in jcts(outcomes).values()} == {(1000.0, 500.0, 100.0)}
    assert {o.order for o in outcomes} == {"fifo", "sjf", "srtf", "las", "fifo+easy"}


def test_jobs_before_the_measured_ones_take_room_but_are_not_counted() -> None:
    (outcome,) = run(QUEUE, reading((None, 8)), since=T0 + timedelta(seconds=5))

    assert outcome.jct_s.tolist() == [1490.0, 1580.0]


def test_vcs_do_not_wait_for_each_other() -> None:
    jobs = jobs_of((0, 1000, 8, "v"), (10, 500, 8, "w"), (20, 100, 8, "v"))

    outcomes = run(jobs, reading(("v", 8), ("w", 8)))

    assert [(o.pool.vc, o.jct_s.tolist()) for o in outcomes] == [("v", [1000.0, 1080.0]), ("w", [500.0])]


def test_preemption_is_counted_and_pays_for_its_restart() -> None:
    jobs = jobs_of((0, 2000, 8, "v"), (700, 100, 8, "v"))

    by_order = {(o.order, o.sizes): o for o in run(jobs, reading((None, 8)), "srtf")}

    srtf = by_order["srtf", "oracle"]
    assert srtf.jct_s.tolist() == [2000.0 + 100.0 + 60.0, 100.0]
    assert srtf.stops.tolist() == [1, 0]


def test_only_compared_orders_are_replayed_over_history_unless_asked() -> None:
    sources = [PREDICTED, "recent_20", ORACLE]
    orders = {name: ORDERS[name] for name in ("sjf", "mlfq", "las")}

    assert planned(orders, sources, everywhere=False) == {
        "fifo": ["none"],
        "sjf": sources,
        "mlfq": [PREDICTED, ORACLE],
        "las": ["none"],
    }
    assert planned(orders, ["recent_20"], everywhere=True)["mlfq"] == ["recent_20", ORACLE]


def test_jobs_without_gpus_are_left_out_and_counted() -> None:
    taken, notes = replayed(jobs_of((0, 100, 0, "v"), (1, 100, 1, "v")))

    assert taken.height == 1
    assert "left out: 1 jobs without GPUs" in notes


def test_a_trace_without_gpu_jobs_is_refused() -> None:
    with pytest.raises(LakeError, match="found no job that asks for GPUs among 1"):
        replayed(jobs_of((0, 100, 0, "v")))
