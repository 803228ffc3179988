"""The study from jobs to rows: shares by hand, selected arms, other task types, and the same rows on any engine."""

import math
from typing import Any

import polars as pl
import pytest

from pipelines.errors import BadUsage
from pipelines.studies.compare import clopper_pearson
from pipelines.studies.reclaim import ARMS, PLACE, Config, run_study, share_rows
from pipelines.studies.study import Context, Findings, Row
from tests.pipelines.studies.shrinking.tiny import tables

AT: Row = {"mix": "gnn", "sharing": "pooled", "variation": "default"}
FINISHED = {"requested": (100.0, 110.0), "reclaim": (150.0, 170.0), "oracle": (200.0, 210.0)}

FIELDS = {
    *PLACE, "arm", "share", "share_lo", "share_hi", "finished", "gpus_used", "killed", "killed_rows",
    "killed_rows_hi", "stretch_p99", "stretched_share",
}  # fmt: skip
"""Fields of every row that readers of the JSON rely on."""


def runs(finished: dict[str, tuple[float, float]], **place: object) -> list[Row]:
    """Return two runs per arm; the second run of `reclaim` kills three times, two of them the same row."""
    return [
        {
            **AT,
            **place,
            "arm": arm,
            "seed": seed,
            "finished": amount,
            "killed": 3.0 * (arm == "reclaim") * seed,
            "stretch_p99": 1.0 + 0.1 * (arm == "reclaim") * seed,
            "stretched_share": 0.0,
            "gpus_used": 4.0 + seed,
            "killed_rows": [1, 7] if arm == "reclaim" and seed else [],
            "started_rows": list(range(10 + 2 * seed)),
        }
        for arm, amounts in finished.items()
        for seed, amount in enumerate(amounts)
    ]


def by_arm(rows: list[Row]) -> dict[object, Row]:
    return {row["arm"]: row for row in share_rows(pl.DataFrame(rows))}


def test_the_share_is_a_ratio_of_mean_gains_and_kills_count_distinct_rows() -> None:
    found = by_arm(runs(FINISHED))
    reclaim = found["reclaim"]

    assert [found[arm]["share"] for arm in FINISHED] == [0.0, pytest.approx(0.55), 1.0]
    half = 12.7062 * 0.05  # Student's t of two seeds, times the standard error of (-0.05, 0.05)
    assert reclaim["share_hi"] == pytest.approx(0.55 + half, abs=1e-4)
    assert [found[arm]["finished"] for arm in FINISHED] == [105.0, 160.0, 205.0]
    assert (reclaim["killed"], reclaim["killed_rows"]) == (3, 2)
    assert reclaim["killed_rows_hi"] == clopper_pearson(2, 12).high
    assert reclaim["stretch_p99"] == pytest.approx(1.05)
    assert set(reclaim) == FIELDS


@pytest.mark.parametrize("column", PLACE)
def test_arms_are_compared_within_a_place(column: str) -> None:
    other = {column: "other"}
    more = {arm: (low + 10.0, high + 10.0) for arm, (low, high) in FINISHED.items()} | {"oracle": (300.0, 310.0)}

    rows = share_rows(pl.DataFrame([*runs(FINISHED), *runs(more, **other)]))

    assert [row["share"] for row in rows if row["arm"] == "reclaim"] == [pytest.approx(0.55), pytest.approx(55 / 190)]


def test_there_is_no_share_where_the_oracle_gains_nothing() -> None:
    found = by_arm(runs(FINISHED | {"oracle": FINISHED["requested"]}))

    assert all(math.isnan(float(str(row["share"]))) for row in found.values())


def small(**options: Any) -> Config:
    """Return a config of few runs in which jobs wait: three simulated arms, GPUs pooled, no models."""
    given = {"seeds": 2, "rate": 120.0, "arm": ("reclaim",), "variation": ("default",), "sharing": ("pooled",)}
    return Config(**{**given, **options})


def context(count: int = 40, **changes: Any) -> Context:
    jobs, usage = tables(count)
    use = {name: value for name, value in changes.items() if name in usage.columns}
    request = jobs.select("job_id", "req_cpu_cores", "req_gpus", "req_mem_gib")
    usage = usage.join(request, on="job_id").with_columns(**use).select(usage.columns)
    jobs = jobs.with_columns(**{name: value for name, value in changes.items() if name in jobs.columns})

    class Lake:
        def table(self, name: str, *_: object) -> pl.LazyFrame:
            return (jobs if name == "jobs" else usage).lazy()

    return Context(lake=Lake, trace=lambda _: "toy")  # type: ignore[arg-type]  # the part of a lake that is used


def rows_of(found: Findings) -> list[Row]:
    (rows,) = found.tables.values()
    return rows


def test_an_unknown_arm_or_variation_is_refused_before_anything_is_read() -> None:
    with pytest.raises(BadUsage, match="--arm nap: expected one of requested, shrunk"):
        run_study(Config(arm=("reclaim", "nap")), Context())
    with pytest.raises(BadUsage, match="--variation wild: expected one of default, prototype"):
        run_study(Config(variation=("wild",)), Context())


def test_there_is_a_row_per_mix_and_arm() -> None:
    found = rows_of(run_study(small(), context()))

    assert [(row["mix"], row["arm"]) for row in found] == [
        (mix, arm) for mix in ("gnn", "no-gnn") for arm in ("requested", "reclaim", "oracle")
    ]
    for row in found:
        assert set(row) == FIELDS
        assert 0.0 <= float(str(row["share"])) < 1.5


def test_jobs_without_the_types_of_the_mix_are_refused() -> None:
    with pytest.raises(BadUsage, match="the trace has no cv, nlp, ctr job"):
        run_study(small(), context(task_type=pl.lit("other")))


@pytest.mark.slow
def test_arms_that_need_models_are_left_out_without_models_or_with_too_few_jobs() -> None:
    without = run_study(small(arm=(), models=False, rate=20.0), context())
    few = run_study(small(arm=("reclaim_prior",), rate=20.0), context(8))

    assert {row["arm"] for row in rows_of(without)} == {arm for arm in ARMS if not ARMS[arm].predicts}
    assert {row["arm"] for row in rows_of(few)} == {"requested", "oracle"}
    assert any(note.startswith("arms that need models were not run: ") for note in few.notes)
