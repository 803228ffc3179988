"""Runs of a grid: paired, and the hour at which the CPU is full, against two jobs worked by hand."""

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
from pipelines.studies.shrinking.runs import KEY, asked_cores, cpu_met_h, run_cases
from scheduler_core.cluster import Machine
from scheduler_core.shrink import ShrinkPolicy
from tests.pipelines.studies.shrinking.tiny import PREDICTOR, SMALL, pool

POOL = pool()
ADVICE = advice_of(asked_of(POOL, PREDICTOR, ShrinkPolicy()), EXPERIMENT_ARMS)


def small_cases(*loads: float) -> list[Case]:
    return cases_of(POOL, seeds=[0, 1], loads_per_h=loads, horizon_s=SMALL.horizon_s)


def test_there_is_a_row_for_every_case_truth_and_arm() -> None:
    cases = small_cases(30.0, 60.0)

    found = run_cases(POOL, ADVICE, cases, SMALL)

    assert found.height == len(cases) * 3 * 4
    assert found.select(*KEY, "seed").is_unique().all()
    assert found["submitted"].min() > 0
    assert found["cpu_met_h"].is_between(0.0, SMALL.horizon_s / 3600.0).all()


def test_the_baseline_is_one_under_every_truth() -> None:
    found = run_cases(POOL, ADVICE, small_cases(60.0), SMALL).filter(pl.col("arm") == "requested")

    own = [name for name in (*KEY, "seed") if name != "truth"]
    by_truth = found.group_by(own).agg(pl.col("completed", "killed", "cpu_used_frac").n_unique())
    assert (by_truth.select("completed", "killed", "cpu_used_frac").to_numpy() == 1).all()


def hand_run(cores: float = 10.0) -> Run:
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
    machines = ClusterSpec(machines=(Machine(name="m", cpu_cores=cores, mem_gib=10.0, gpus=2),), source="").machines
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


def test_gangs_that_never_fit_ask_for_nothing() -> None:
    run = hand_run()
    units = np.array([[6000, 1024, 1000], [60_000, 1024, 1000]])
    larger = replace(run.schedule.workload, request_units=units, granted_units=units)

    def asked(never_fits: list[bool]) -> float:
        schedule = replace(run.schedule, workload=larger, never_fits=np.array(never_fits))
        return asked_cores(replace(run, schedule=schedule))

    assert (asked([False, False]), asked([False, True])) == (33.0, 6.0)
    assert np.isnan(asked([True, True]))


@pytest.mark.parametrize(
    ("cores", "expected"),
    # Full from the start; with both jobs after two steps of five minutes; with both jobs, but for a twentieth; never.
    [(6.0, 0.0), (12.0, 1 / 6), (12.6, 1 / 6), (12.7, 1.5), (10.0, 1.5)],
)
def test_the_cpu_is_full_when_nearly_all_is_held(cores: float, expected: float) -> None:
    assert cpu_met_h(hand_run(cores).schedule) == pytest.approx(expected)
