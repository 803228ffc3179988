"""The study `small-clusters`: run-time forecasts on parts of a trace, each taken as a small cluster of its own.

Evaluation is in `pipelines.models.evaluate`. Called by `taut study small-clusters`.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final, Literal

import polars as pl

from modelserve.bundle.combination import FITTED
from pipelines.errors import BadUsage, TrainingError
from pipelines.models.evaluate import evaluate, first_jobs
from pipelines.models.judging import COMBINED
from pipelines.studies.study import Context, Findings, Row, Study, cluster_option, option, seed_option, trace_option

__all__ = ["SMALL_CLUSTERS"]

Part = Literal["whole", "half-month", "week"]

JUDGED: Final = 200
"""Minimum number of later jobs of a cluster whose loss and coverage are judged by themselves."""

OTHERS: Final = ("user", "vc", "group", "workload", "gpu_type", "req_cpu_cores", "req_mem_gib", "nodes", "queue_s")
"""Columns emptied so that only id, submission, run time and GPUs are left."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Config:
    """Options of the study.

    Each virtual cluster is cut into periods. Each period counts as a cluster of its own, of whose jobs only the id,
    submission, run time and GPUs are known.
    """

    trace: str | None = trace_option()
    cluster: str | None = cluster_option()
    part: Part = option("whole", help="Cut each virtual cluster into these parts.")
    least: int = option(250, help="Leave out parts with fewer jobs.", minimum=1)
    most: int = option(20_000, help="Leave out parts with more jobs.", minimum=1)
    first: int = option(500, help="Number of first jobs that are forecast without a trained model.", minimum=1)
    seed: int = seed_option()


def run(config: Config, context: Context) -> Findings:
    """Judge the combined forecast of every part against its members and the best simple answer in hindsight.

    Raises
    ------
    BadUsage
        No part has as many jobs as the config asks for.
    LakeError
        The lake lacks the jobs.
    """
    trace = context.trace(config.trace)
    jobs = context.lake().table("jobs", trace, config.cluster).collect()
    rows = [row for name, part in parts_of(jobs, config) if (row := _judged(name, part, config, context)) is not None]
    if not rows:
        raise BadUsage(f"{trace} has no part of {config.least} to {config.most} jobs: choose another --part or --least")
    tables = {"": rows, "over the clusters": _summary(rows)}
    return Findings(study="small-clusters", trace=trace, tables=tables, flat=rows)


def parts_of(jobs: pl.DataFrame, config: Config) -> Iterator[tuple[str, pl.DataFrame]]:
    """Yield the name and the jobs of each part, by virtual cluster and time; only ids, times and GPUs are kept."""
    label = {
        "whole": pl.lit("all"),
        "half-month": pl.format(
            "{}{}",
            pl.col("submit_ts").dt.strftime("%m"),
            pl.when(pl.col("submit_ts").dt.day() <= 15).then(pl.lit("a")).otherwise(pl.lit("b")),
        ),
        "week": pl.col("submit_ts").dt.strftime("%V"),
    }[config.part]
    named = jobs.with_columns(label.alias("part"), pl.col("vc").fill_null("-").alias("of"))
    for (vc, part), own in sorted(named.partition_by(["of", "part"], as_dict=True).items()):
        if config.least <= own.height <= config.most:
            yield f"{str(vc)[:8]} {part}", _bare(own.drop("part", "of"))


def _bare(jobs: pl.DataFrame) -> pl.DataFrame:
    empty = [pl.lit(None, dtype=jobs.schema[name]).alias(name) for name in OTHERS]
    return jobs.with_columns(
        *empty,
        cluster=pl.lit("main"),
        task_type=pl.lit("other"),
        req_gpus=(pl.col("req_gpus") * pl.col("instances")).cast(jobs.schema["req_gpus"]),
        instances=pl.lit(1, dtype=jobs.schema["instances"]),
    )


def _judged(name: str, jobs: pl.DataFrame, config: Config, context: Context) -> Row | None:
    trace = str(jobs["trace"][0])
    try:
        table = evaluate(jobs, trace=trace, seed=config.seed, nthread=context.threads)
    except TrainingError:
        return None
    context.talk(f"{name}: {jobs.height} jobs")
    found = {row["model"]: row for row in table.to_dicts()}
    own, simple = found[COMBINED], {k: row for k, row in found.items() if k not in {COMBINED, *FITTED}}
    best = min(simple, key=lambda each: (simple[each]["pinball"], each))
    against = simple[best]["pinball"]
    ours, recent = first_jobs(jobs, config.first)
    return {
        "cluster": name,
        "jobs": jobs.height,
        "later": own["n"],
        "pinball": own["pinball"],
        "best": best,
        "ratio": own["pinball"] / against,
        "ratio_lo": 1.0 - simple[best]["lead_hi"] / against,
        "ratio_hi": 1.0 - simple[best]["lead_lo"] / against,
        "xgboost_ratio": found["xgboost"]["pinball"] / against if "xgboost" in found else None,
        "coverage_p90": own["coverage_p90"],
        "first_ratio": ours / recent,
    }


def _summary(rows: list[Row]) -> list[Row]:
    frame = pl.DataFrame(rows)
    large = frame.filter(pl.col("later") >= JUDGED)
    return [_line("all", frame), _line(f"at least {JUDGED} later jobs", large)]


def _line(name: str, rows: pl.DataFrame) -> Row:
    ratios, lowest, coverage, first = (
        rows[key].to_numpy() for key in ("ratio", "ratio_lo", "coverage_p90", "first_ratio")
    )
    return {
        "clusters": name,
        "n": len(rows),
        "ratio": ratios.mean() if len(rows) else None,
        "ratio_max": ratios.max() if len(rows) else None,
        "above_1.05": int((ratios > 1.05).sum()),
        "surely_above_1.05": int((lowest > 1.05).sum()),
        "coverage_85_to_95": int(((coverage >= 0.85) & (coverage <= 0.95)).sum()),
        "coverage_below_80": int((coverage < 0.8).sum()),
        "first_ratio": first.mean() if len(rows) else None,
        "first_ratio_max": first.max() if len(rows) else None,
    }


SMALL_CLUSTERS: Final = Study(name="small-clusters", config=Config, run=run, takes=("lake", "threads"))
"""The study as `taut study` lists it."""
