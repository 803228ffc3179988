"""The study `replay`: the recorded jobs of a trace under queue orders, with sizes from models and from history."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import partial
from typing import Final

import altair as alt
import polars as pl

from pipelines.errors import BadUsage
from pipelines.studies.charts import chart
from pipelines.studies.intervals import BLOCK_DAYS, DRAWS
from pipelines.studies.replay.capacity import Reading, readings_of
from pipelines.studies.replay.replay import (
    ORDERS,
    QUANTUM_S,
    Outcome,
    orders_for,
    planned,
    replay,
    replayed,
)
from pipelines.studies.replay.rows import ALL, rows_of, screen
from pipelines.studies.replay.sizes import ORACLE, sizes_of
from pipelines.studies.study import (
    Context,
    Findings,
    Row,
    Study,
    cluster_option,
    option,
    seed_option,
    trace_option,
)

KEPT_FROM, KEPT_TO = -1.0, 1.1
"""Ends of the axis of the kept gain; values beyond them are drawn at the ends."""


def gain_kept(rows: pl.DataFrame, of: Sequence[str]) -> alt.TopLevelMixin:
    """Draw the share of the oracle's gain over FIFO that each source of sizes keeps, by queue order."""
    kept = pl.col("gain_kept", "gain_kept_low", "gain_kept_high").cast(pl.Float64).clip(KEPT_FROM, KEPT_TO)
    shown = rows.filter(
        pl.col("gang_gpus") == ALL, pl.col("sizes") != ORACLE, pl.col("gain_kept").is_not_null()
    ).with_columns(kept)
    return chart(
        shown.rename({"gain_kept_low": "gain_kept_lo", "gain_kept_high": "gain_kept_hi"}),
        x=("sizes:N", "", ""),
        y=("gain_kept:Q", "share of the oracle's gain over FIFO", "%"),
        series="order",
        names={name: name for name, order in ORDERS.items() if order.compared},
        panel="reading",
        title="What sizes known at submission keep of the oracle's gain in mean JCT",
        of=of,
        mark="point",
        columns=2,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Config:
    """Options of the study; an empty choice takes everything that applies. `loads` are for the reading `load` only."""

    trace: str | None = trace_option()
    cluster: str | None = cluster_option()
    readings: tuple[str, ...] = option(
        (),
        name="--reading",
        help="Reading of the cluster's size: machine_list, vc_table or load (may be repeated).",
        shown="all that the lake allows",
    )
    orders: tuple[str, ...] = option(
        (), name="--order", help="Only this queue order (may be repeated).", shown="all that apply"
    )
    sizes: tuple[str, ...] = option(
        (),
        help="Only this source of sizes: predicted, oracle, or a baseline from history (may be repeated).",
        shown="all that apply",
    )
    loads: tuple[float, ...] = option(
        (0.7, 0.9),
        name="--load",
        help="Offered load of the reading `load` (may be repeated).",
        minimum=0.1,
        maximum=1.5,
        shown="0.7 and 0.9",
    )
    since: str | None = option(
        None,
        help="Measure only jobs submitted from this date on (UTC), with models fixed at it.",
        shown="the first month with a model; a new model every month",
    )
    until: str | None = option(None, help="Replay only jobs submitted before this date (UTC).", shown="all")
    restart_cost_s: float = option(
        60.0, help="GPU time without progress in every start after a preemption, in seconds.", minimum=0.0
    )
    detail: bool = option(False, help="Rows by size of gang as well.")
    seed: int = seed_option()


def run(config: Config, context: Context) -> Findings:
    """Replay the jobs of one cluster of a trace under every reading, order and source of sizes of the config."""
    lake, trace, talk = context.lake(), context.trace(config.trace), context.talk
    every = lake.table("jobs", trace, config.cluster).collect()
    clusters = every["cluster"].unique().sort().to_list()
    if len(clusters) != 1:
        raise BadUsage(f"{trace} has the clusters {', '.join(clusters) or 'none'}: choose one with --cluster")
    jobs, left_out = replayed(every)
    jobs, since = within(jobs, config)
    orders = orders_for(config.orders)
    sizes = sizes_of(
        jobs,
        lake.table("jobs", trace).filter(pl.col("req_gpus") > 0.0).collect(),
        list(dict.fromkeys([*config.sizes, ORACLE])) if config.sizes else None,
        zone=lake.manifest(trace).zone,
        since=since,
        seed=config.seed,
        nthread=context.threads,
        talk=talk,
    )
    readings = readings_of(lake, jobs, since=sizes.since, loads=config.loads, names=config.readings)
    plan = planned(orders, list(sizes.predicted_s), everywhere=bool(config.sizes))
    outcomes: list[Outcome] = []
    for reading in readings:
        outcomes += replay(jobs, sizes, reading, plan, restart_cost_s=config.restart_cost_s)
        talk(f"{reading.name}: simulated")
    of: Row = {"trace": trace, "cluster": clusters[0]}
    rows = [{**of, **row} for row in rows_of(outcomes, detail=config.detail, seed=config.seed)]
    frame = pl.DataFrame(rows, infer_schema_length=None)
    drawable = frame.filter(pl.col("sizes") != ORACLE, pl.col("gain_kept").is_not_null()).height
    subtitle = f"{trace}, {clusters[0]}: intervals over blocks of {BLOCK_DAYS} days of submission"
    return Findings(
        study="replay",
        trace=trace,
        tables={"": screen(rows)},
        charts={"gain_kept": partial(gain_kept, frame, [subtitle])} if drawable else {},
        notes=(*left_out, *assumptions(config, jobs, readings, sizes.since), *sizes.notes),
        flat=rows,
    )


def within(jobs: pl.DataFrame, config: Config) -> tuple[pl.DataFrame, datetime | None]:
    """Return the jobs submitted before `--until`, and the date of `--since`; None if it is not given."""
    since, until = (_date(config.since, "--since"), _date(config.until, "--until"))
    kept = jobs if until is None else jobs.filter(pl.col("submit_ts") < until)
    measured = kept if since is None else kept.filter(pl.col("submit_ts") >= since)
    if measured.is_empty():
        days = jobs["submit_ts"].sort().dt.strftime("%Y-%m-%d").to_list()
        raise BadUsage(
            f"no job was submitted from --since {config.since or 'the first'} to --until {config.until or 'the last'}: "
            f"give dates between {days[0]} and {days[-1]}"
        )
    return kept, since


def _date(text: str | None, flag: str) -> datetime | None:
    if text is None:
        return None
    try:
        found = datetime.fromisoformat(text)
    except ValueError:
        raise BadUsage(f"{flag}: found {text!r}, expected a date such as 2017-11-01") from None
    return found if found.tzinfo else found.replace(tzinfo=UTC)


def assumptions(config: Config, jobs: pl.DataFrame, readings: Sequence[Reading], since: datetime) -> list[str]:
    """Return notes on what the replays assume because the trace does not record it."""
    recorded = jobs["queue_s"].null_count() < jobs.height
    return [
        *([f"jobs submitted from {config.until} on are left out"] if config.until else []),
        *(f"capacity {reading.name}: {reading.note}" for reading in readings),
        "arrivals and run times are real; recorded starts are not used"
        if recorded
        else "the trace has no start times: arrivals and run times are real, recorded ends assume no wait",
        "only GPUs bind; a gang larger than a machine is divided into equal instances, fewer GPUs are never split",
        "history contains a job's run time from its recorded end on, though in the replay it may end later",
        f"figures are of jobs submitted from {since:%Y-%m-%d %H:%M} UTC on; earlier ones warm the cluster up",
        f"intervals are 95 %, of {DRAWS} draws of blocks of {BLOCK_DAYS} days of submission, the same for all orders: "
        "what single weeks weigh, not what other arrivals would come to",
        f"preempting orders pay {config.restart_cost_s:g} s of GPU time for every restart, and let a job run at least "
        f"{QUANTUM_S:g} s or six times as long as a restart, gittins twice",
    ]


REPLAY: Final = Study(name="replay", config=Config, run=run, takes=("lake", "threads"))
