"""The paper's algorithm rebuilt: models with five features that never saw a job's group, their cut, and the sweep."""

from collections.abc import Callable
from dataclasses import replace
from functools import cache

import numpy as np
import polars as pl
import pytest

from pipelines.simulation.job_pool import Pool, job_pool
from pipelines.studies.shrinking.arms import requests_of
from pipelines.studies.shrinking.figures import FIT
from pipelines.studies.shrinking.five_features import FiveFeatures
from pipelines.studies.shrinking.paper import GRID, LOADS_PER_H, TRUTHS, Config, findings_of, type_rows
from scheduler_core.types import Reason, Recommendation, Request
from tests.pipelines.studies.shrinking.tiny import SMALL, plan, tables

FOLDS = 2


def depending(run_s: Callable[[pl.Expr], pl.Expr], count: int = 80) -> Pool:
    """Return a pool of all kinds whose run time is a function of the CPU request; every other request is constant."""
    jobs, usage = tables(count)
    cores = pl.Series([float(1 + at // 4 % 8) for at in range(count)])
    asked = jobs.with_columns(req_cpu_cores=cores, req_mem_gib=pl.lit(8.0), req_gpus=pl.lit(0.5))
    return job_pool(asked.with_columns(run_s=run_s(pl.col("req_cpu_cores"))), usage)


@cache
def slower_with_less() -> Pool:
    return depending(lambda cores: 3600.0 / cores)


@cache
def model() -> FiveFeatures:
    return FiveFeatures.fitted(slower_with_less(), folds=FOLDS, seed=0)


def unchanged(pool: Pool) -> list[Recommendation]:
    return [Recommendation.unchanged(entry.job, Reason.FLOOR) for entry in pool.jobs]


def test_no_model_saw_the_group_of_the_jobs_it_predicts() -> None:
    pool = slower_with_less()
    own = {at for at, entry in enumerate(pool.jobs) if entry.job.group == "g3"}
    told = tuple(
        replace(entry, measured=replace(entry.measured, run_s=9e6)) if at in own else entry
        for at, entry in enumerate(pool.jobs)
    )
    changed = FiveFeatures.fitted(replace(pool, jobs=told), folds=FOLDS, seed=0)
    jobs = [entry.job for entry in pool.jobs]

    before, after = (each.run_times(jobs, np.arange(len(jobs)), requests_of(jobs)).p50 for each in (model(), changed))

    assert own
    assert before[sorted(own)].tolist() == after[sorted(own)].tolist()
    assert before.tolist() != after.tolist(), "jobs of other groups are predicted by models that saw it"


def test_only_a_resource_that_the_run_time_follows_is_important() -> None:
    jobs = [entry.job for entry in slower_with_less().jobs]

    assert {each.important for each in model().knowledge(jobs)} == {frozenset({"cpu_cores"})}


@pytest.mark.parametrize(("cv", "verdict"), [(0.75, "holds"), (0.25, "fails")])
def test_the_shrink_of_each_type_is_over_drawn_jobs_and_the_claim_is_judged(cv: float, verdict: str) -> None:
    pool = slower_with_less()
    shares = {"ctr": 0.5, "cv": cv, "nlp": 1.0, "gnn": 1.0}
    shrunk: list[Recommendation] = [
        replace(
            answer, target=Request(cpu_cores=answer.request.cpu_cores * shares[job.task_type], mem_gib=8.0, gpus=0.5)
        )
        for job, answer in zip((entry.job for entry in pool.jobs), unchanged(pool), strict=True)
    ]

    whole = {"with": np.arange(len(pool.jobs))}
    rows = type_rows(replace(plan(pool), populations=whole), {FIT: shrunk}, range(3))

    found = {row["task_type"]: row for row in rows}
    assert {kind: found[kind]["change_pct"] for kind in shares} == pytest.approx(
        {kind: 100.0 * (share - 1.0) for kind, share in shares.items()}
    )
    assert found["ctr"]["verdict"] == verdict
    assert found["nlp"]["paper_type"] == "NMT"


def test_every_experiment_has_its_table_under_every_slowdown_model_and_the_fit_names_its_setting() -> None:
    findings = findings_of(slower_with_less(), model(), Config(seeds=2, loads=(70.0, 90.0)), SMALL, "toy")

    fits = findings.tables["Fit"]
    assert len(fits) == len(GRID)
    assert {row["within_third"] for row in fits} <= set(range(7))
    held = next(row for row in fits if (row["alpha0"], row["theta"], row["cut"]) == (0.5, 0.02, 0.02))
    assert held["cpu_request_pct"] == pytest.approx(0.0), "CPU is important here"
    assert any(note.startswith("fit: Parameters(") for note in findings.notes)
    claims = [row for row in findings.tables["Experiment 1"] if "figure" in row]
    assert {row["truth"] for row in claims} == set(TRUTHS)
    assert {row["arm"] for row in claims} == {FIT}
    assert {row["paper_gain_pct"] for row in claims if row["figure"] == "cpu_request"} == {-28.5}
    assert any(row.get("paper_h") == 2.0 for row in findings.tables["Experiment 1"])
    # Shared machines are not simulated under DRF.
    for title, column, count in (("Experiment 2", "mix", 3 * 2), ("Experiment 3", "policy", 3 * 3 - 1)):
        rows = findings.tables[title]
        assert len({(row["truth"], row[column]) for row in rows}) == len(rows) == count
    assert sorted(findings.frames["runs"]["rate_per_h"].unique()) == [70.0, 90.0]
    assert {name[:7] for name in findings.charts} == {f"figure{number}" for number in range(2, 7)}
    for draw in findings.charts.values():
        assert draw().to_dict()["data"]


def test_the_default_loads_are_the_published_ones() -> None:
    assert (min(LOADS_PER_H), max(LOADS_PER_H)) == (30.0, 110.0)
    assert Config().seeds == 10
