"""Runs: populations, arrivals in a mix, a row for every place and arm, and the hour at which the CPU is full."""

from collections import Counter
from dataclasses import replace

import numpy as np
import polars as pl
import pytest

from pipelines.errors import BadUsage
from pipelines.simulation.job_pool import job_pool
from pipelines.simulation.workloads import gangs_of
from pipelines.studies.shrinking.arms import ARMS, advice_of, sizing
from pipelines.studies.shrinking.runs import PLACE, populations, run_arms, weights_of
from scheduler_core.shrink import ShrinkPolicy
from tests.pipelines.studies.shrinking.tiny import PREDICTOR, SMALL, plan, pool, tables

POOL = pool()
ADVICE = advice_of(sizing(POOL, PREDICTOR, ShrinkPolicy()), ARMS)


def test_there_is_a_population_with_gnn_only_if_there_are_gnn_jobs() -> None:
    jobs, usage = tables()
    none = job_pool(jobs.filter(pl.col("task_type") != "gnn"), usage)

    assert {gnn: len(rows) for gnn, rows in populations(POOL).items()} == {"with": 40, "without": 30}
    assert set(populations(none)) == {"without"}


def test_a_pool_without_a_kind_of_the_mix_is_refused() -> None:
    jobs, usage = tables()

    with pytest.raises(BadUsage, match="has no ctr job"):
        populations(job_pool(jobs.filter(pl.col("task_type") != "ctr"), usage))


def test_the_mix_is_drawn_the_same_for_a_seed_and_gnn_leaves_its_share_to_the_others() -> None:
    kinds = [entry.job.task_type for entry in POOL.jobs]
    of = plan(POOL, 2000.0, settings=replace(SMALL, horizon_s=12 * 3600.0))
    first, again, other = ({gnn: each for gnn, _, each in of.cases(seed)} for seed in (1, 1, 2))

    counts = {gnn: Counter(kinds[pick] for pick in each.picks) for gnn, each in first.items()}
    for gnn, count in counts.items():
        weights = weights_of(gnn)
        shares = {kind: weight / sum(weights.values()) for kind, weight in weights.items()}
        assert {kind: each / count.total() for kind, each in count.items()} == pytest.approx(shares, abs=0.01)
    np.testing.assert_array_equal(first["with"].at_s, again["with"].at_s)
    np.testing.assert_array_equal(first["with"].picks, again["with"].picks)
    assert first["with"].at_s[:50].tolist() != other["with"].at_s[:50].tolist()


def test_there_is_a_row_for_every_place_seed_and_arm_and_one_baseline_under_every_slowdown_model() -> None:
    runs = run_arms(plan(POOL, 30.0, 60.0), ADVICE, [0, 1])

    assert runs.height == 2 * 2 * 3 * 4 * 2
    assert runs.select(*PLACE, "arm", "seed").is_unique().all()
    assert runs["cpu_met_h"].is_between(0.0, SMALL.horizon_s / 3600.0).all()
    place = [name for name in (*PLACE, "seed") if name != "truth"]
    base = runs.filter(pl.col("arm") == "requested").group_by(place)
    assert (base.agg(pl.col("completed", "cpu_used_frac").n_unique()).select("completed") == 1).to_series().all()


def test_the_cpu_is_full_at_once_if_jobs_request_all_of_it_and_never_if_they_request_little() -> None:
    frame, usage = tables()
    full, little = (
        run_arms(
            plan(job_pool(frame.with_columns(req_cpu_cores=pl.lit(cores), run_s=pl.lit(9000.0)), usage), 200.0),
            {"requested": ADVICE["requested"]},
            [0],
        )["cpu_met_h"]
        for cores in (96.0, 0.5)
    )

    assert full.max() <= 0.25
    assert little.min() == 1.0


def test_an_arrival_of_one_instance_requests_one() -> None:
    gangs = replace(POOL, frame=POOL.frame.with_columns(instances=pl.col("instances") * 3))
    few = {"requested": ADVICE["requested"]}
    one, all_ = (
        run_arms(replace(plan(gangs), single=single), few, [0])["cpu_request_cores"] for single in (True, False)
    )

    assert one.max() <= gangs_of(POOL.frame).request_units[:, 0].max() / 1000.0
    assert all_.min() > one.max()
