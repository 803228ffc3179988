"""The study `replay`: the recorded jobs of a trace under queue orders, with sizes from models and from history."""

import time
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import partial
from typing import Final

import altair as alt
import polars as pl

from pipelines.errors import BadUsage
from pipelines.lake.lake import Lake
from pipelines.studies.charts import chart
from pipelines.studies.intervals import BLOCK_DAYS, DRAWS
from pipelines.studies.replay.capacity import Reading, evidence_of, readings_of
from pipelines.studies.replay.replay import (
    ORDERS,
    QUANTUM_S,
    Outcome,
    Replayed,
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
        pl.col("vc") == ALL, pl.col("gang_gpus") == ALL, pl.col("sizes") != ORACLE, pl.col("gain_kept").is_not_null()
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
    detail: bool = option(False, help="Rows by VC and by size of gang as well.")
    seed: int = seed_option()


@dataclass(frozen=True, slots=True, kw_only=True)
class Replays:
    """The outcomes of all simulation runs on one cluster of a trace, and notes that apply to all of them."""

    trace: str
    cluster: str
    outcomes: tuple[Outcome, ...]
    notes: tuple[str, ...]

    def rows(self, *, detail: bool, seed: int) -> list[Row]:
        """Return flat rows of metrics, as made by `rows.rows_of`."""
        rows = rows_of(self.outcomes, detail=detail, seed=seed)
        return [{"trace": self.trace, "cluster": self.cluster, **row} for row in rows]


def run(config: Config, context: Context) -> Findings:
    """Replay the jobs of one cluster of a trace under every reading, order and source of sizes of the config."""
    replays = replays_of(context.lake(), context.trace(config.trace), config, context)
    rows = replays.rows(detail=config.detail, seed=config.seed)
    frame = pl.DataFrame(rows, infer_schema_length=None)
    drawable = frame.filter(pl.col("sizes") != ORACLE, pl.col("gain_kept").is_not_null()).height
    return Findings(
        study="replay",
        trace=replays.trace,
        tables={"": screen(rows)},
        charts={"gain_kept": partial(gain_kept, frame, subtitle_of(replays))} if drawable else {},
        notes=replays.notes,
        flat=rows,
    )


def replays_of(lake: Lake, trace: str, config: Config, context: Context) -> Replays:
    """Run all replays of a config."""
    every = lake.table("jobs", trace, config.cluster).collect()
    clusters = every["cluster"].unique().sort().to_list()
    if len(clusters) != 1:
        raise BadUsage(f"{trace} has the clusters {', '.join(clusters) or 'none'}: choose one with --cluster")
    taken, since = within(replayed(every), config)
    jobs, talk = taken.jobs, context.talk
    orders = orders_for(jobs, config.orders)
    began = time.perf_counter()
    learnt_from = lake.table("jobs", trace).filter(pl.col("req_gpus") > 0.0).collect()
    sources = list(dict.fromkeys([*config.sizes, ORACLE])) if config.sizes else None
    zone = lake.manifest(trace).zone
    sizes = sizes_of(
        jobs, learnt_from, sources, zone=zone, since=since, seed=config.seed, nthread=context.threads, talk=talk
    )
    talk(f"sizes took {time.perf_counter() - began:.1f} s")
    found = evidence_of(lake, jobs, since=sizes.since, loads=config.loads)
    readings = readings_of(found, config.readings)
    plan = planned(orders, list(sizes.predicted_s), everywhere=bool(config.sizes))
    outcomes: list[Outcome] = []
    for reading in readings:
        began = time.perf_counter()
        own = list(replay(jobs, sizes, reading, plan, restart_cost_s=config.restart_cost_s))
        talk(f"{reading.name}: {len(own)} outcomes took {time.perf_counter() - began:.1f} s")
        outcomes.extend(own)
    notes = (*taken.notes, *assumptions(config, jobs, readings, sizes.since), *sizes.notes)
    return Replays(trace=trace, cluster=clusters[0], outcomes=tuple(outcomes), notes=notes)


def within(taken: Replayed, config: Config) -> tuple[Replayed, datetime | None]:
    """Return the jobs submitted before `--until`, and the date of `--since`; None if it is not given."""
    since, until = (_date(config.since, "--since"), _date(config.until, "--until"))
    submit_ts = taken.jobs["submit_ts"]
    jobs = taken.jobs if until is None else taken.jobs.filter(submit_ts < until)
    measured = jobs if since is None else jobs.filter(jobs["submit_ts"] >= since)
    if measured.is_empty():
        days = submit_ts.sort().dt.strftime("%Y-%m-%d").to_list()
        raise BadUsage(
            f"no job was submitted from --since {config.since or 'the first'} to --until {config.until or 'the last'}: "
            f"give dates between {days[0]} and {days[-1]}"
        )
    notes = taken.notes if until is None else (*taken.notes, f"jobs submitted from {until:%Y-%m-%d} on are left out")
    return Replayed(jobs=jobs, notes=notes), since


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


def subtitle_of(replays: Replays) -> list[str]:
    """Return the lines below the title of a chart: which jobs, and how many."""
    first = replays.outcomes[0]
    key = (first.reading.name, first.order, first.sizes)
    measured = sum(len(each.jct_s) for each in replays.outcomes if (each.reading.name, each.order, each.sizes) == key)
    return [
        f"{replays.trace}, {replays.cluster}: {measured} measured jobs, submissions and run times as in the log",
        f"95 % intervals over blocks of {BLOCK_DAYS} days of submission; values beyond the axis are drawn at its ends",
    ]


REPLAY: Final = Study(name="replay", config=Config, run=run, takes=("lake", "threads"))
