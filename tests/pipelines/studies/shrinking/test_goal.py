"""The goal and the harm by hand: what is asked, what was found, and jobs harmed counted once."""

import math
from collections import Counter
from dataclasses import replace

import pytest

from pipelines.simulation.advice import ORACLE, REQUESTED
from pipelines.studies.intervals import clopper_pearson
from pipelines.studies.shrinking.goal import goal_rows, harm_rows, row_harm_rows
from scheduler_core.recommendations import unchanged_request
from scheduler_core.types import Reason, Request
from tests.pipelines.studies.shrinking.tiny import pool, runs

NAN = math.nan
HARM = {
    "stretched_share": [0.0, 0.0],
    "stretch_mean": [1.0, 1.0],
    "wait_mean_s": [9.0, 11.0],
    "killed_gpu_h": [0.0, 0.0],
}
HELD = {"cpu_allocated_frac": [0.9, 0.7], "mem_allocated_frac": [0.2, 0.2], "gpu_allocated_frac": [0.6, 0.8]}


def figures(completed: list[float], killed: list[float], stretch: list[float]) -> dict[str, list[float]]:
    return {"completed": completed, "killed": killed, "stretch_p99": stretch, **HARM, **HELD}


BASE = figures([100.0, 120.0], [0.0, 0.0], [1.0, 1.0])
BEST = figures([200.0, 220.0], [0.0, 0.0], [1.0, 1.0])


@pytest.mark.parametrize(
    ("arm", "met"),
    [
        (figures([150.0, 170.0], [0.0, 0.0], [1.02, 1.08]), [True, True, True]),
        (figures([149.0, 169.0], [0.0, 1.0], [1.05, 1.06]), [False, False, False]),
    ],
)
def test_each_demand_is_met_or_not(arm: dict[str, list[float]], met: list[bool]) -> None:
    rows = goal_rows(runs({"requested": BASE, "shrunk": arm, "oracle": BEST}), "shrunk")

    assert [row["met"] for row in rows] == met
    assert [row["asked"] for row in rows] == [0.5, 0, 1.05]
    share, kills, stretch = rows
    assert share["found"] == pytest.approx((sum(arm["completed"]) / 2 - 110.0) / 100.0)
    assert kills["found"] == sum(arm["killed"])
    assert stretch["found"] == pytest.approx(sum(arm["stretch_p99"]) / 2)


def test_only_contention_is_judged() -> None:
    assert goal_rows(runs({"requested": BASE, "shrunk": BASE, "oracle": BEST}, truth="unchanged"), "shrunk") == []


@pytest.mark.parametrize(
    ("cpu", "gpu", "bottleneck"),
    [
        ([0.9, 0.7], [0.4, 0.2], "cpu"),
        ([0.5, 0.5], [0.9, 0.9], "gpu+cpu"),
        ([0.5, 0.4], [0.0, 0.0], "none"),
        # In the second seed no job waited.
        ([0.6, NAN], [0.1, NAN], "cpu"),
        ([NAN, NAN], [NAN, NAN], "none"),
    ],
)
def test_harm_names_the_resources_that_half_of_the_waiting_lacked(
    cpu: list[float], gpu: list[float], bottleneck: str
) -> None:
    lacked = {"cpu_lacked_share": cpu, "mem_lacked_share": [0.0, 0.0], "gpu_lacked_share": gpu}

    [row] = harm_rows(runs({"requested": {**BASE, **lacked}}))

    assert row["bottleneck"] == bottleneck
    assert row["cpu_lacked_share"] == pytest.approx(cpu[0] if math.isnan(cpu[1]) else sum(cpu) / 2, nan_ok=True)


def test_harm_sums_kills_over_seeds() -> None:
    [requested, shrunk] = harm_rows(runs({"requested": BASE, "shrunk": figures([1.0, 1.0], [2.0, 4.0], [1.0, 1.0])}))

    assert requested["cpu_allocated_frac"] == pytest.approx(0.8)
    assert (shrunk["killed_sum"], shrunk["killed"]) == (6.0, 3.0)


def test_a_harmed_job_counts_once_however_often_it_is_drawn() -> None:
    jobs = pool()
    requests = [unchanged_request(entry.job, Reason.SHRUNK) for entry in jobs.jobs]
    starved, slowed, *rest = requests
    used = jobs.jobs[1].measured
    slow_target = replace(slowed.request, cpu_cores=used.cpu_cores / 1.5)
    given = [
        replace(starved, target=Request(cpu_cores=6.0, mem_gib=0.5, gpus=starved.request.gpus)),
        replace(slowed, target=slow_target),
        *rest,
    ]

    rows = row_harm_rows(jobs, {REQUESTED: requests, "shrunk": given, ORACLE: requests})

    found = next(row for row in rows if (row["arm"], row["gnn"], row["devices"]) == ("shrunk", "with", "all"))
    assert (found["jobs"], found["killed"], found["killed_share"]) == (40, 1, 1 / 40)
    assert found["stretched_share"] == 1 / 40
    # Targets are rounded up to whole milli-cores only in what is held, not in what the run becomes.
    assert found["stretch_max"] == pytest.approx(1.5)
    assert 0.0 < float(str(found["killed_lo"])) < 1 / 40 < float(str(found["killed_hi"]))
    assert all(row["killed"] == 0 for row in rows if row["arm"] == ORACLE)


@pytest.mark.parametrize(("starved", "groups_killed"), [((0,), 1), ((0, 1, 2), 1), ((0, 9, 20), 3)])
def test_jobs_of_one_group_bound_a_rate_no_better_than_one(starved: tuple[int, ...], groups_killed: int) -> None:
    jobs = pool()  # groups of five
    given = [
        replace(each, target=replace(each.request, mem_gib=0.5)) if at in starved else each
        for at, each in enumerate(unchanged_request(entry.job, Reason.SHRUNK) for entry in jobs.jobs)
    ]

    rows = row_harm_rows(jobs, {"shrunk": given})

    found = next(row for row in rows if (row["gnn"], row["devices"]) == ("with", "all"))
    assert (found["jobs"], found["killed"]) == (40, len(starved))
    assert (found["groups"], found["groups_killed"]) == (8, groups_killed)
    assert found["groups_killed_hi"] == clopper_pearson(groups_killed, 8).high
    assert found["largest_user_share"] == max(Counter(entry.job.user for entry in jobs.jobs).values()) / 40
