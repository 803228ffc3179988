"""Runs of a grid: paired, deterministic, and over time, against two jobs worked by hand."""

from dataclasses import replace

import numpy as np
import polars as pl
import pytest

from pipelines.simulation.cluster_file import ClusterSpec
from pipelines.simulation.engine.simulator import simulate
from pipelines.simulation.engine.workload import NO_OUTAGES, Workload
from pipelines.simulation.measures.metrics import Uses, summarise
from pipelines.simulation.paired_runs import Arrivals, Run
from pipelines.studies.shrinking.arms import EXPERIMENT_ARMS, advice_of, asked_of
from pipelines.studies.shrinking.cases import Case, cases_of
from pipelines.studies.shrinking.runs import KEY, POLICIES, Outcomes, asked_cores, cpu_met_h, over_time, run_cases
from scheduler_core.cluster import Machine
from scheduler_core.shrink import ShrinkPolicy
from tests.pipelines.studies.shrinking.tiny import PREDICTOR, SMALL, pool

POOL = pool()
ADVICE = advice_of(asked_of(POOL, PREDICTOR, ShrinkPolicy()), EXPERIMENT_ARMS)


def outcomes(cases: list[Case], **options: object) -> Outcomes:
    return run_cases(POOL, ADVICE, cases, SMALL, **options)  # type: ignore[arg-type]  # as the tests give them


def small_cases(*loads: float) -> list[Case]:
    return cases_of(POOL, seeds=[0, 1], loads_per_h=loads, horizon_s=SMALL.horizon_s)


def test_there_is_a_row_for_every_case_policy_truth_and_arm() -> None:
    cases = small_cases(30.0, 60.0)

    found = outcomes(cases, policies=tuple(POLICIES)).runs

    assert found.height == len(cases) * 3 * 3 * 4
    assert found.select(*KEY, "seed").is_unique().all()
    assert found["submitted"].min() > 0


def test_the_baseline_is_one_under_every_truth() -> None:
    found = outcomes(small_cases(60.0), policies=("fifo", "srtf")).runs.filter(pl.col("arm") == "requested")

    own = [name for name in (*KEY, "seed") if name != "truth"]
    by_truth = found.group_by(own).agg(pl.col("completed", "killed", "cpu_used_frac").n_unique())
    assert (by_truth.select("completed", "killed", "cpu_used_frac").to_numpy() == 1).all()


def test_only_the_load_that_is_asked_for_is_watched() -> None:
    found = outcomes(small_cases(30.0, 60.0), watched_per_h=60.0)

    assert found.over_time["rate_per_h"].unique().to_list() == [60.0]
    assert found.runs.filter(pl.col("rate_per_h") == 60.0)["cpu_met_h"].null_count() == 0
    assert found.runs.filter(pl.col("rate_per_h") == 30.0)["cpu_met_h"].is_null().all()
    assert found.over_time.group_by(*KEY, "seed").len()["len"].unique().to_list() == [12]


def hand_run() -> Run:
    """Two gangs of 6 cores on a machine of 10, each an hour: the second waits for the first, and is cut at 1.5 h."""
    count = 2
    units = np.array([[6000, 1024, 1000]] * count)
    workload = Workload(
        arrive_s=np.array([0.0, 600.0]),
        request_units=units,
        granted_units=units,
        instances=np.ones(count, dtype=np.int64),
        gpu_type=np.full(count, -1),
        user=np.zeros(count, dtype=np.int64),
        priority=np.zeros(count),
        run_s=np.full(count, 3600.0),
        granted_run_s=np.full(count, 3600.0),
        dies=np.zeros(count, dtype=np.bool_),
        fails=np.zeros(count, dtype=np.bool_),
        predicted_s=np.full(count, np.nan),
    )
    machines = ClusterSpec(machines=(Machine(name="m", cpu_cores=10.0, mem_gib=10.0, gpus=2),), source="").machines
    schedule = simulate(workload, machines, horizon_s=5400.0, engine="plain")
    uses = Uses(mean=np.array([[3000.0, 512.0, 100.0]] * count))
    arrivals = Arrivals(devices="all", seed=0, at_s=workload.arrive_s, picks=np.arange(count), outages=NO_OUTAGES)
    return Run(
        arm="requested",
        slowdown_model="unchanged",
        arrivals=arrivals,
        schedule=schedule,
        uses=uses,
        metrics=summarise(schedule, uses=uses),
    )


def test_the_course_of_two_jobs_is_as_worked_by_hand() -> None:
    course = over_time(hand_run())

    assert course["time_h"] == pytest.approx(np.arange(18) / 12)
    assert course["allocated_cpu_cores_frac"] == pytest.approx(np.full(18, 0.6))
    assert course["used_cpu_cores_frac"] == pytest.approx(np.full(18, 0.3))
    # 6 cores of one job, 12 of two from the end of the second step on, 6 again once the first has ended after an hour.
    assert course["asked_cpu_cores_frac"] == pytest.approx([0.6] + [1.2] * 10 + [0.6] * 7)
    assert course["deployed"] == pytest.approx([1.0] * 11 + [2.0] * 7)
    assert course["completed"] == pytest.approx([0.0] * 11 + [1.0] * 7)
    assert course["waiting"] == pytest.approx([0.0] * 2 + [1.0] * 10 + [0.0] * 6)


def test_gangs_that_never_fit_ask_for_nothing() -> None:
    run = hand_run()
    units = np.array([[6000, 1024, 1000], [60_000, 1024, 1000]])
    larger = replace(run.schedule.workload, request_units=units, granted_units=units)

    def asked(never_fits: list[bool]) -> float:
        schedule = replace(run.schedule, workload=larger, never_fits=np.array(never_fits))
        return asked_cores(replace(run, schedule=schedule))

    assert (asked([False, False]), asked([False, True])) == (33.0, 6.0)
    assert np.isnan(asked([True, True]))


@pytest.mark.parametrize(("full_from", "expected"), [(0, 0.0), (5, 5 / 12), (None, 1.0)])
def test_the_bottleneck_is_met_when_nearly_all_is_held(full_from: int | None, expected: float) -> None:
    held = np.full(12, 0.9)
    if full_from is not None:
        held[full_from:] = 0.97

    assert cpu_met_h({"allocated_cpu_cores_frac": held, "time_h": np.arange(12) / 12}) == pytest.approx(expected)
