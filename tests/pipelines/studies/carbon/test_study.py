"""`taut study carbon` on made-up measurements: every arm and budget, tables, and the same rows again."""

import math
from pathlib import Path

import polars as pl
import pytest

from pipelines.studies.carbon.jobs import Measured
from pipelines.studies.carbon.months import PRICES_S_PER_KWH as BOUND_PRICES
from pipelines.studies.carbon.months import Front
from pipelines.studies.carbon.simulation import ARMS, BASELINES, BOUND, PRICES_S_PER_KWH, TAUT, TWO_STAGES, Cluster
from pipelines.studies.carbon.study import (
    SHARES,
    Config,
    Runs,
    claim_rows,
    findings,
    ratio_rows,
    summary_rows,
)
from pipelines.studies.compare import compare
from scheduler_core.planning.elastic import BudgetRule


def frame_of(made_up: Path, seeds: int = 2, rule: BudgetRule = "period") -> pl.DataFrame:
    cluster = Cluster(gpus=16, period_s=3600.0, rule=rule)
    measured = Measured.of(made_up)
    small = Runs(measured=measured, jobs=12, jobs_per_h=20.0, cluster=cluster, prices=PRICES_S_PER_KWH)
    return compare(ARMS, range(seeds), small).select(pl.lit("small").alias("setting"), pl.all())


def test_every_arm_runs_under_every_budget_that_it_follows_and_none_is_below_the_bound(made_up: Path) -> None:
    runs = frame_of(made_up, seeds=1)

    assert dict(runs.group_by("arm").len().rows()) == {
        name: len(BOUND_PRICES)
        if arm is None
        else len(SHARES)
        if arm.rules
        else len(PRICES_S_PER_KWH)
        if arm.at_prices
        else 1
        for name, arm in ARMS.items()
    }
    least, known = runs.filter(arm=BOUND), runs.filter(pl.col("arm") != BOUND, pl.col("mean_jct_s").is_finite())
    lowest = Front.of(least["kwh"].to_numpy(), least["mean_jct_s"].to_numpy()).at(known["kwh"].to_numpy())
    assert 1.0 - 1e-9 <= (known["mean_jct_s"].to_numpy() / lowest).min() < 1.5
    assert str(runs.rows()) == str(frame_of(made_up, seeds=1).rows())


def test_tables_compare_taut_with_every_other_arm_and_hold_the_baselines_to_the_bar(made_up: Path) -> None:
    found = findings(frame_of(made_up), Config(seeds=2))

    summary = [row for row in found.tables["at equal energy"] if row["setting"] == "small"]
    assert {row["arm"] for row in summary if row["ours"] == TAUT} == set(ARMS) - {TAUT, BOUND}
    assert {row["arm"] for row in summary if row["ours"] == TWO_STAGES} == set(ARMS) - {TWO_STAGES, BOUND}
    assert len(found.claims) == 2 * len(BASELINES)
    assert all((row["verdict"] == "met") == (row["shorter"] >= 1.5) for row in found.claims)
    assert not any(row["shorter"] > row["ceiling"] * (1.0 + 1e-9) for row in found.claims)


def points(arm: str, kwh: float, jct_s: float, seed: int = 0) -> dict[str, object]:
    return {"setting": "s", "seed": seed, "arm": arm, "kwh": kwh, "mean_jct_s": jct_s}


def claims(rows: list[dict[str, object]]) -> list[dict[str, object]]:
    """Claims against `fifo_max`, with the two judged arms alike."""
    both = [*rows, *({**row, "arm": TWO_STAGES} for row in rows if row["arm"] == TAUT)]
    ratios = ratio_rows(pl.DataFrame(both)).filter(pl.col("setting") == "s", pl.col("ours") == TAUT)
    return claim_rows(summary_rows(ratios))


def test_a_ratio_by_hand_and_a_seed_that_cannot_be_compared() -> None:
    rows = [
        *(points(TAUT, kwh, jct) for kwh, jct in ((1.0, 200.0), (3.0, 100.0))),
        points("fifo_max", 2.0, 300.0),
        points(TAUT, 5.0, 100.0, seed=1),
        points("fifo_max", 2.0, 300.0, seed=1),
        *(points(BOUND, 0.5, 50.0, seed=seed) for seed in (0, 1)),
    ]

    (claim,) = claims(rows)

    assert (claim["shorter"], claim["ceiling"], claim["verdict"]) == (2.0, 6.0, "met")


@pytest.mark.parametrize(
    ("theirs_s", "least_s", "verdict"),
    [(200.0, 100.0, "met"), (140.0, 50.0, "missed"), (140.0, 100.0, "missed; no scheduler reaches it")],
)
def test_a_bar_that_is_missed_says_whether_it_can_be_reached(theirs_s: float, least_s: float, verdict: str) -> None:
    rows = [points(TAUT, 2.0, 100.0), points("fifo_max", 2.0, theirs_s), points(BOUND, 1.0, least_s)]

    assert [row["verdict"] for row in claims(rows)] == [verdict]


def test_a_budget_until_all_jobs_end_is_the_other_rule(made_up: Path) -> None:
    runs = frame_of(made_up, seeds=1, rule="to-completion")

    assert runs.filter(arm="greedy_max")["share"].to_list() == [math.inf]
