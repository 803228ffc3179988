"""Canonical tables to a job pool, and the pool to paired rows."""

import json
from collections import defaultdict
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from features.tables import Jobs, Usage
from pipelines.errors import BadUsage, LakeError
from pipelines.ingest import ingest
from pipelines.job_pool import Pool, job_pool
from pipelines.lake import Lake
from pipelines.simulate import PAPER_MIX, SimulationSettings, simulate
from pipelines.simulation_rows import SUMMARY_COLUMNS, averaged
from scheduler_core.cluster import Machine
from scheduler_core.errors import BadInput, PredictorUnavailable
from scheduler_core.predictors import ConstantPredictor
from scheduler_core.types import Request
from tests.scheduler_core.cases import ToyPredictor

T0 = datetime(2020, 7, 1, tzinfo=UTC)
KINDS = ("ctr", "nlp", "cv")


def tables(count: int = 30) -> tuple[pl.DataFrame, pl.DataFrame]:
    """Return canonical jobs and usage: over-claimed requests, one in ten on a device of unknown memory."""
    rng = np.random.default_rng(8)
    jobs, usage = [], []
    for i in range(count):
        submit = T0 + timedelta(minutes=i)
        run_s = float(rng.lognormal(6.5, 0.8))
        key = {"trace": "toy", "cluster": "c", "job_id": f"j{i:03d}", "role": "worker"}
        jobs.append(
            {
                **key,
                "user": f"u{i % 4}",
                "task_type": KINDS[i % 3],
                "gpu_type": "MISC" if i % 10 == 0 else "T4",
                "submit_ts": submit,
                "start_ts": submit,
                "end_ts": submit + timedelta(seconds=run_s),
                "run_s": run_s,
                "run_s_censored": False,
                "status": "completed",
                "instances": int(rng.integers(1, 9)),
                "req_cpu_cores": 6.0,
                "req_mem_gib": 29.3,
                "req_gpus": float(rng.choice([0.25, 0.5, 1.0])),
            }
        )
        peak_gib = float(rng.uniform(2.0, 6.0))
        usage.append(
            {
                **key,
                "used_cpu_cores": float(rng.uniform(0.5, 3.0)),
                "used_gpus": float(rng.uniform(0.0, 0.2)),
                "mem_avg_gib": peak_gib / 2,
                "mem_max_gib": peak_gib,
                "gpu_mem_avg_gib": 0.5,
                "gpu_mem_max_gib": float(rng.uniform(0.3, 2.0)),
                "instances_measured": 1,
            }
        )
    return canonical(jobs, Jobs), canonical(usage, Usage)


def canonical(rows: list[dict[str, Any]], schema: Any) -> pl.DataFrame:
    empty = schema.create_empty()
    frame = pl.DataFrame(rows, schema_overrides={n: t for n, t in empty.schema.items() if n in rows[0]})
    return schema.validate(pl.concat([empty, frame], how="diagonal"))


def altered(frame: pl.DataFrame, row: int, **values: object) -> pl.DataFrame:
    """Return the frame with some values of one row replaced."""
    at = pl.int_range(pl.len()) == row
    return frame.with_columns(
        pl.when(at).then(pl.lit(value, dtype=frame.schema[name])).otherwise(name).alias(name)
        for name, value in values.items()
    )


SMALL = SimulationSettings(
    rate_per_h=60.0, horizon_s=2 * 3600.0, machines=[Machine(name="m", cpu_cores=96.0, mem_gib=512.0, gpus=8)], seed=4
)


def predictor() -> ConstantPredictor:
    return ConstantPredictor(run_s=600.0, peak=Request(cpu_cores=3.0, mem_gib=6.0, gpus=0.2), gpu_mem_gib=2.0)


def figures(pool: Pool, **changes: Any) -> dict[tuple[str, str, str], dict[str, Any]]:
    chosen = replace(SMALL, **changes)
    rows = simulate(pool, predictor(), chosen).rows
    return {(str(row["arm"]), str(row["truth"]), str(row["devices"])): row for row in rows}


def test_pool_joins_request_and_use() -> None:
    jobs, usage = tables(3)

    pool = job_pool(jobs, usage)

    first, row, used = pool.jobs[0], jobs.row(0, named=True), usage.row(0, named=True)
    assert first.job.request == Request(cpu_cores=6.0, mem_gib=29.3, gpus=row["req_gpus"])
    assert first.job.submit_ts == T0.timestamp()
    assert (first.measured.mem_gib, first.measured.mem_avg_gib) == (used["mem_max_gib"], used["mem_avg_gib"])
    assert [entry.measured.device_mem_gib for entry in pool.jobs] == [16.0, 16.0, 16.0]
    assert len(pool.known) == 2


@pytest.mark.parametrize(
    ("values", "why"),
    [
        ({"role": "ps"}, "role"),
        ({"run_s": None}, "no_run_time"),
        ({"run_s": 0.0}, "no_run_time"),
        ({"run_s_censored": True}, "run_time_censored"),
        ({"req_gpus": None}, "no_request"),
        ({"job_id": "elsewhere"}, "not_measured"),
    ],
)
def test_what_is_left_out_is_counted_by_why(values: dict[str, object], why: str) -> None:
    jobs, usage = tables(5)

    pool = job_pool(altered(jobs, 2, **values), usage)

    assert len(pool.jobs) == 4
    assert {name: count for name, count in pool.dropped.items() if count} == {why: 1}


def test_parameter_servers_stay_where_asked() -> None:
    jobs, usage = tables(5)

    pool = job_pool(altered(jobs, 2, role="ps"), altered(usage, 2, role="ps"), dropped_roles=())

    assert len(pool.jobs) == 5


def test_nothing_measured_is_an_error_that_says_why() -> None:
    jobs, usage = tables(5)

    with pytest.raises(LakeError, match=r"among 5 jobs \(5 not_measured\)"):
        job_pool(jobs, usage.clear())


def test_permuting_rows_changes_no_pool() -> None:
    jobs, usage = tables(20)

    assert job_pool(jobs.sample(fraction=1.0, shuffle=True, seed=1), usage.reverse()) == job_pool(jobs, usage)


def test_every_arm_truth_and_population_has_its_row() -> None:
    rows = figures(job_pool(*tables()))

    assert set(rows) == {
        (arm, truth, devices)
        for arm in ("requested", "shrunk", "oracle")
        for truth in ("unchanged", "predicted", "contention")
        for devices in ("all", "known")
    }
    for row in rows.values():
        assert set(SUMMARY_COLUMNS) <= set(row)
        assert row["trace"] == "toy"
        json.dumps(row, allow_nan=False)


def test_arms_are_paired_and_the_baseline_is_one() -> None:
    rows = figures(job_pool(*tables()))

    assert len({(row["submitted"], row["never_fits"]) for key, row in rows.items() if key[2] == "all"}) == 1
    for truth in ("predicted", "contention"):
        assert {**rows["requested", truth, "all"], "truth": ""} == {
            **rows["requested", "unchanged", "all"],
            "truth": "",
        }


def test_shrinking_deploys_more_of_an_overclaimed_load_and_the_oracle_does_no_harm() -> None:
    rows = figures(job_pool(*tables()), rate_per_h=200.0)

    for truth in ("unchanged", "predicted", "contention"):
        requested, shrunk, oracle = (rows[arm, truth, "all"] for arm in ("requested", "shrunk", "oracle"))
        assert requested["deployed"] < shrunk["deployed"] <= oracle["deployed"]
        assert shrunk["deployed_gain"] == pytest.approx(shrunk["deployed"] / requested["deployed"] - 1)
        assert (oracle["killed"], oracle["stretch_p99"]) == (0, pytest.approx(1.0))
        assert (requested["reclaimed_cpu_core_h"], requested["deployed_gain"]) == (0.0, 0.0)


def test_without_a_guard_the_papers_algorithm_does_harm_only_contention_sees() -> None:
    rows = figures(job_pool(*tables()), guards=("none",))
    tight = job_pool(tables()[0], tables()[1].with_columns(mem_max_gib=pl.lit(20.0)))
    harmed = figures(tight, guards=("none",))

    assert rows["unguarded", "contention", "all"]["killed"] == 0
    assert harmed["unguarded", "unchanged", "all"]["killed"] == 0
    assert harmed["unguarded", "contention", "all"]["killed"] > 0


def test_the_pool_is_scaled_in_one_matrix() -> None:
    counting = ToyPredictor()

    simulate(job_pool(*tables()), counting, SMALL)

    assert counting.calls == 1


def test_a_predictor_that_is_away_changes_nothing_and_loses_no_job() -> None:
    class Away(ToyPredictor):
        def run_times(self, *_: Any) -> Any:
            raise PredictorUnavailable("no bundle")

    result = simulate(job_pool(*tables()), Away(), SMALL)

    by_arm = defaultdict(list)
    for row in result.rows:
        by_arm[row["arm"]].append({name: value for name, value in row.items() if name != "arm"})
    assert by_arm["shrunk"] == by_arm["requested"]
    assert {row["reason"] for row in result.reclaimed if row["arm"] == "shrunk"} == {"predictor_unavailable"}


def test_without_a_predictor_there_is_the_oracle_to_compare_with() -> None:
    result = simulate(job_pool(*tables()), None, SMALL)

    assert {row["arm"] for row in result.rows} == {"requested", "oracle"}
    assert result.model_decided_share == {}


def test_reclaimed_rows_add_up_to_the_pool() -> None:
    pool = job_pool(*tables())
    result = simulate(pool, predictor(), SMALL)

    for arm in ("shrunk", "oracle"):
        cores = [row for row in result.reclaimed if (row["arm"], row["resource"]) == (arm, "cpu_cores")]
        assert sum(row["jobs"] for row in cores) == len(pool.jobs)  # type: ignore[misc]
        assert sum(row["requested"] for row in cores) == 6.0 * sum(entry.job.instances for entry in pool.jobs)  # type: ignore[misc]
    shrunk_cores = next(row for row in result.reclaimed if (row["arm"], row["resource"]) == ("shrunk", "cpu_cores"))
    assert shrunk_cores["reclaimed_frac"] == pytest.approx(0.5)


def test_assumptions_are_said() -> None:
    notes = " ".join(simulate(job_pool(*tables()), None, SMALL).notes)

    assert "3 of 30 jobs ran on devices of unknown memory, taken as 16 GiB" in notes
    assert "8 GPUs" in notes
    assert "passed over without bound" in notes


def test_same_seed_same_rows_and_replications_differ() -> None:
    pool = job_pool(*tables())
    twice = replace(SMALL, replications=2)

    first = simulate(pool, predictor(), twice)

    assert first.rows == simulate(pool, predictor(), twice).rows
    assert {row["seed"] for row in first.rows} == {4, 5}
    means = averaged(first.rows)
    assert len(means) == len(first.rows) / 2
    pair = [row for row in first.rows if (row["arm"], row["truth"], row["devices"]) == ("shrunk", "contention", "all")]
    mean = next(row for row in means if (row["arm"], row["truth"], row["devices"]) == ("shrunk", "contention", "all"))
    assert mean["deployed"] == (pair[0]["deployed"] + pair[1]["deployed"]) / 2  # type: ignore[operator]
    assert mean["seeds"] == 2


def test_a_mix_the_pool_lacks_is_refused_and_one_the_known_devices_lack_is_said() -> None:
    jobs, usage = tables()
    pool = job_pool(
        jobs.with_columns(gpu_type=pl.when(pl.col("task_type") == "cv").then(pl.lit("MISC")).otherwise("gpu_type")),
        usage,
    )

    with pytest.raises(BadUsage, match="no gnn job"):
        figures(pool, mix={"gnn": 1.0, "ctr": 1.0})
    mixed = replace(SMALL, mix={"cv": 1.0, "ctr": 1.0})
    result = simulate(pool, None, mixed)
    assert "devices=known: no cv job is among them; the mix leaves it out" in result.notes
    assert {row["devices"] for row in result.rows} == {"all", "known"}


@pytest.mark.parametrize("changes", [{"truths": ()}, {"replications": 0}])
def test_settings_that_run_nothing_are_refused(changes: dict[str, Any]) -> None:
    with pytest.raises(BadUsage, match="at least one replication"):
        figures(job_pool(*tables(3)), **changes)


def test_an_unknown_truth_is_refused_by_name() -> None:
    with pytest.raises(BadInput, match="expected one of contention"):
        figures(job_pool(*tables(3)), truths=("hope",))


@settings(max_examples=8, deadline=None)
@given(seed=st.integers(0, 1000), policy=st.sampled_from(["fifo", "srtf", "drf"]))
def test_guarded_by_true_peaks_no_job_is_killed(seed: int, policy: str) -> None:
    # The floors lie above every peak of these tables: 6 GiB and 2 GiB of GPU memory.
    rows = figures(job_pool(*tables()), seed=seed, queue_policy=policy, truths=("contention",))

    assert rows["shrunk", "contention", "all"]["killed"] == 0
    assert rows["shrunk", "contention", "all"]["stretch_p99"] == pytest.approx(1.0)


@pytest.mark.slow
def test_on_the_real_sample_the_unguarded_algorithm_kills_and_the_oracle_does_not(traces: Path, tmp_path: Path) -> None:
    ingest("pai", traces / "pai", tmp_path / "lake")
    with Lake(tmp_path / "lake") as lake:
        pool = job_pool(lake.table("jobs", "pai").collect(), lake.table("usage", "pai").collect())

    # 824 tasks: 238 parameter servers and 3 without a GPU request are left out; 86 ran on devices of type MISC.
    assert (len(pool.jobs), len(pool.known)) == (583, 497)
    result = simulate(pool, ConstantPredictor(run_s=600.0, peak=Request(cpu_cores=0.0, mem_gib=0.0, gpus=0.0)), HALVING)

    rows = {(row["arm"], row["truth"]): row for row in result.rows if row["devices"] == "all"}
    requested, halved, oracle = (rows[arm, "contention"] for arm in ("requested", "unguarded", "oracle"))
    assert halved["killed"] > 0
    assert rows["unguarded", "unchanged"]["completed"] > halved["completed"]
    assert (oracle["killed"], oracle["stretch_p99"]) == (0, pytest.approx(1.0))
    assert oracle["completed"] > requested["completed"]
    assert requested["cpu_allocated_frac"] > 0.8, "the CPU is the bottleneck, as in the paper"


HALVING = SimulationSettings(guards=("none",), mix=PAPER_MIX)
"""The paper's load, mix and cluster, with its unguarded algorithm."""
