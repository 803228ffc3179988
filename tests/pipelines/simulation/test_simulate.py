"""Paired rows of a pool: arms, slowdown models and populations under the same arrivals."""

import json
from collections import defaultdict
from dataclasses import replace
from pathlib import Path
from typing import Any

import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pipelines.errors import BadUsage
from pipelines.lake.ingest import ingest
from pipelines.lake.lake import Lake
from pipelines.simulation.advice import ConstantPredictor, scales_of
from pipelines.simulation.cluster_file import ClusterSpec
from pipelines.simulation.energy.account import SHOWN as ENERGY_SHOWN
from pipelines.simulation.job_pool import Pool, job_pool
from pipelines.simulation.rows import SUMMARY_COLUMNS, averaged
from pipelines.simulation.settings import PAPER_MIX, SimulationSettings
from pipelines.simulation.simulate import SimulationResult, simulate
from scheduler_core.cluster import Machine
from scheduler_core.errors import BadInput, PredictorUnavailable
from scheduler_core.queueing import Discipline
from scheduler_core.types import Predictor, Request
from tests.examples import examples
from tests.pipelines.lake.canonical import measured_tables
from tests.scheduler_core.cases import ToyPredictor

ONE_MACHINE = ClusterSpec(machines=(Machine(name="m", cpu_cores=96.0, mem_gib=512.0, gpus=8),), source="one machine")
SMALL = SimulationSettings(rate_per_h=60.0, horizon_s=2 * 3600.0, cluster=ONE_MACHINE, seed=4)


def predictor() -> ConstantPredictor:
    return ConstantPredictor(run_s=600.0, peak=Request(cpu_cores=3.0, mem_gib=6.0, gpus=0.2), gpu_mem_gib=2.0)


def run(pool: Pool, predicting: Predictor | None, chosen: SimulationSettings) -> SimulationResult:
    return simulate(pool, scales_of(predicting, pool, chosen), chosen)


def figures(pool: Pool, **changes: Any) -> dict[tuple[str, str, str], dict[str, Any]]:
    chosen = replace(SMALL, **changes)
    rows = run(pool, predictor(), chosen).rows
    return {(str(row["arm"]), str(row["truth"]), str(row["devices"])): row for row in rows}


def test_every_arm_truth_and_population_has_its_row() -> None:
    rows = figures(job_pool(*measured_tables()))

    assert set(rows) == {
        (arm, truth, devices)
        for arm in ("requested", "shrunk", "oracle")
        for truth in ("unchanged", "predicted", "contention")
        for devices in ("all", "known")
    }
    for row in rows.values():
        # Of GPUs shared by devices, and of sites that are told, alone.
        assert set(SUMMARY_COLUMNS) - {"fragmented_gpus", *ENERGY_SHOWN} <= set(row)
        assert row["trace"] == "toy"
        json.dumps(row, allow_nan=False)


def test_arms_are_paired_and_the_baseline_is_one() -> None:
    rows = figures(job_pool(*measured_tables()))

    assert len({(row["submitted"], row["never_fits"]) for key, row in rows.items() if key[2] == "all"}) == 1
    for truth in ("predicted", "contention"):
        assert {**rows["requested", truth, "all"], "truth": ""} == {
            **rows["requested", "unchanged", "all"],
            "truth": "",
        }


def test_shrinking_deploys_more_of_an_overclaimed_load_and_the_oracle_does_no_harm() -> None:
    rows = figures(job_pool(*measured_tables()), rate_per_h=200.0)

    for truth in ("unchanged", "predicted", "contention"):
        requested, shrunk, oracle = (rows[arm, truth, "all"] for arm in ("requested", "shrunk", "oracle"))
        assert requested["deployed"] < shrunk["deployed"] <= oracle["deployed"]
        assert shrunk["deployed_gain"] == pytest.approx(shrunk["deployed"] / requested["deployed"] - 1)
        assert oracle["killed"] == 0
        assert 1.0 <= oracle["stretch_p99"] < 1.05, "it knows what a part of a GPU costs, and stays within theta"
        assert truth != "unchanged" or oracle["stretch_p99"] == pytest.approx(1.0)
        assert (requested["reclaimed_cpu_core_h"], requested["deployed_gain"]) == (0.0, 0.0)


def test_without_a_guard_the_papers_algorithm_does_harm_only_contention_sees() -> None:
    rows = figures(job_pool(*measured_tables()), guards=("none",))
    tight = job_pool(measured_tables()[0], measured_tables()[1].with_columns(mem_max_gib=pl.lit(20.0)))
    harmed = figures(tight, guards=("none",))

    assert rows["unguarded", "contention", "all"]["killed"] == 0
    assert harmed["unguarded", "unchanged", "all"]["killed"] == 0
    assert harmed["unguarded", "contention", "all"]["killed"] > 0


def test_the_pool_is_scaled_in_one_matrix() -> None:
    counting = ToyPredictor()

    run(job_pool(*measured_tables()), counting, SMALL)

    assert counting.calls == 1


def test_a_predictor_that_is_away_changes_nothing_and_loses_no_job() -> None:
    class Away(ToyPredictor):
        def run_times(self, *_: Any) -> Any:
            raise PredictorUnavailable("no bundle")

    result = run(job_pool(*measured_tables()), Away(), SMALL)

    by_arm = defaultdict(list)
    for row in result.rows:
        by_arm[row["arm"]].append({name: value for name, value in row.items() if name != "arm"})
    assert by_arm["shrunk"] == by_arm["requested"]
    assert {row["reason"] for row in result.reclaimed if row["arm"] == "shrunk"} == {"predictor_unavailable"}


def test_reclaimed_rows_add_up_to_the_pool() -> None:
    pool = job_pool(*measured_tables())
    result = run(pool, predictor(), SMALL)

    for arm in ("shrunk", "oracle"):
        cores = [row for row in result.reclaimed if (row["arm"], row["resource"]) == (arm, "cpu_cores")]
        assert sum(row["jobs"] for row in cores) == len(pool.jobs)  # type: ignore[misc]
        assert sum(row["requested"] for row in cores) == 6.0 * sum(entry.job.instances for entry in pool.jobs)  # type: ignore[misc]
    shrunk_cores = next(row for row in result.reclaimed if (row["arm"], row["resource"]) == ("shrunk", "cpu_cores"))
    assert shrunk_cores["reclaimed_frac"] == pytest.approx(0.5)


def test_same_seed_same_rows_and_replications_differ() -> None:
    pool = job_pool(*measured_tables())
    twice = replace(SMALL, replications=2, slowdown_models=("contention",))

    first = run(pool, predictor(), twice)

    assert first.rows == run(pool, predictor(), twice).rows
    assert {row["seed"] for row in first.rows} == {4, 5}
    means = averaged(first.rows)
    assert len(means) == len(first.rows) / 2
    pair = [row for row in first.rows if (row["arm"], row["truth"], row["devices"]) == ("shrunk", "contention", "all")]
    mean = next(row for row in means if (row["arm"], row["truth"], row["devices"]) == ("shrunk", "contention", "all"))
    assert mean["deployed"] == (pair[0]["deployed"] + pair[1]["deployed"]) / 2  # type: ignore[operator]
    assert mean["seeds"] == 2


def test_a_mix_the_pool_lacks_is_refused_and_one_the_known_devices_lack_is_said() -> None:
    jobs, usage = measured_tables()
    pool = job_pool(
        jobs.with_columns(gpu_type=pl.when(pl.col("task_type") == "cv").then(pl.lit("MISC")).otherwise("gpu_type")),
        usage,
    )

    with pytest.raises(BadUsage, match="no gnn job"):
        figures(pool, mix={"gnn": 1.0, "ctr": 1.0})
    mixed = replace(SMALL, mix={"cv": 1.0, "ctr": 1.0})
    result = run(pool, None, mixed)
    assert "devices=known: it holds no cv job; left out of the mix" in result.notes
    assert {row["devices"] for row in result.rows} == {"all", "known"}


@pytest.mark.parametrize("changes", [{"slowdown_models": ()}, {"replications": 0}])
def test_settings_that_run_nothing_are_refused(changes: dict[str, Any]) -> None:
    with pytest.raises(BadUsage, match="at least one replication"):
        figures(job_pool(*measured_tables(3)), **changes)


def test_an_unknown_truth_is_refused_by_name() -> None:
    with pytest.raises(BadInput, match="expected one of contention"):
        figures(job_pool(*measured_tables(3)), slowdown_models=("hope",))


@settings(max_examples=examples(4), deadline=None)
@given(seed=st.integers(0, 1000), policy=st.sampled_from(["fifo", "srtf", "drf"]))
def test_guarded_by_true_peaks_no_job_is_killed(seed: int, policy: str) -> None:
    # The floors lie above every peak of these tables: 6 GiB and 2 GiB of GPU memory.
    models, discipline = ("contention", "contention_ideal"), Discipline(policy=policy)
    rows = figures(job_pool(*measured_tables()), seed=seed, discipline=discipline, slowdown_models=models)

    assert [rows["shrunk", model, "all"]["killed"] for model in models] == [0, 0]
    assert rows["shrunk", "contention_ideal", "all"]["stretch_p99"] == pytest.approx(1.0)
    assert rows["shrunk", "contention", "all"]["stretch_p99"] > 1.0, "a part of a GPU slows even if it is the peak"


@pytest.mark.parametrize(
    "discipline", [Discipline(policy="sjf"), Discipline(policy="qssf"), Discipline(backfill="easy")]
)
def test_what_looks_at_predictions_needs_a_predictor(discipline: Discipline) -> None:
    pool = job_pool(*measured_tables(5))

    with pytest.raises(BadUsage, match="needs predicted run times and there is no predictor"):
        run(pool, None, replace(SMALL, discipline=discipline))
    assert run(pool, predictor(), replace(SMALL, discipline=discipline)).rows


def test_arrivals_drawn_without_end_are_refused() -> None:
    with pytest.raises(BadUsage, match="finite number of hours"):
        figures(job_pool(*measured_tables(3)), horizon_s=float("inf"))


@pytest.mark.slow
def test_on_the_real_sample_the_unguarded_algorithm_kills_and_the_oracle_does_not(traces: Path, tmp_path: Path) -> None:
    ingest("pai", traces / "pai", tmp_path / "lake")
    with Lake(tmp_path / "lake") as lake:
        pool = job_pool(lake.table("jobs", "pai").collect(), lake.table("usage", "pai").collect())

    # 824 tasks: 238 parameter servers and 3 without a GPU request are left out; 86 ran on devices of type MISC.
    assert (len(pool.jobs), sum(pool.known)) == (583, 497)
    result = run(pool, ConstantPredictor(run_s=600.0, peak=Request(cpu_cores=0.0, mem_gib=0.0, gpus=0.0)), HALVING)

    rows = {(row["arm"], row["truth"]): row for row in result.rows if row["devices"] == "all"}
    requested, halved, oracle = (rows[arm, "contention"] for arm in ("requested", "unguarded", "oracle"))
    assert halved["killed"] > 0
    assert rows["unguarded", "unchanged"]["completed"] > halved["completed"]
    assert oracle["killed"] == 0
    assert oracle["stretch_p99"] < 1.05
    assert oracle["completed"] > requested["completed"]
    assert requested["cpu_allocated_frac"] > 0.8, "the CPU is the bottleneck, as in the paper"


HALVING = SimulationSettings(guards=("none",), mix=PAPER_MIX)
"""The paper's load, mix and cluster, with its unguarded algorithm."""
