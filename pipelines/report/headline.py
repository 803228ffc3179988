"""The report's opening: what was claimed and not used, the groups to fix first, and what reclaiming would finish."""

from typing import Final

import polars as pl

from features.vocabulary import GPU_MEM_GIB_OF_TYPE
from pipelines.errors import BadUsage, LakeError
from pipelines.report.claims import Price, gpu_slack
from pipelines.report.parts import Note, Part, Section, Table, Traces, shortened
from pipelines.rightsizing.rows import rightsized
from pipelines.simulation.advice import ORACLE, RECLAIM, REQUESTED
from pipelines.simulation.job_pool import job_pool
from pipelines.simulation.rows import averaged
from pipelines.simulation.settings import SimulationSettings
from pipelines.simulation.simulate import ALL, simulate
from scheduler_core.shrink import ShrinkPolicy
from scheduler_core.types import RESOURCES

SHOWN_GROUPS: Final = 10
RATE_PER_H: Final = 70.0
DRAWS: Final = 2
"""Arrivals per hour and number of draws of the simulation, which runs 12 h on the paper's machines as the demo does."""
UNITS: Final = {"cpu_cores": "cores", "mem_gib": "GiB", "gpus": "GPUs"}


def headline(traces: Traces, price: Price | None) -> Section:
    """Build the opening of the report; a trace without measured use only gets a note."""
    slack = gpu_slack(traces.ask("over_claim").rows) if traces.ask("over_claim").rows.width else pl.DataFrame()
    sentences, tables, notes = [], [], []
    for trace in traces.names:
        jobs, usage = (traces.lake.table(name, trace, traces.cluster).collect() for name in ("jobs", "usage"))
        if not usage.height:
            notes.append(Note(text=f"{trace} measures no use: what its jobs claim and do not use is unknown."))
            continue
        sentences += _claimed(slack, trace, price)
        tables += _groups(jobs, usage, trace)
        sentences += _reclaimed(jobs, usage, trace)
    return Section(
        name="headline",
        title="In short",
        intro="\n".join(sentences) or "No trace measures the use of its jobs.",
        parts=(*tables, *notes),
    )


def _claimed(slack: pl.DataFrame, trace: str, price: Price | None) -> list[str]:
    rows = slack.filter(pl.col("trace") == trace, pl.col("use") == "mean") if slack.width else slack
    if not rows.height:
        return []
    [row] = rows.head(1).iter_rows(named=True)
    money = "" if price is None else f", worth {row['slack_h'] * price.amount:,.0f} {price.currency} at {price} an hour"
    return [
        f"{trace}: of {row['requested_h']:,.0f} GPU-hours that measured jobs claimed, {row['slack_h']:,.0f} "
        f"({row['slack_share']:.0%}) were not used{money}."
    ]


def _groups(jobs: pl.DataFrame, usage: pl.DataFrame, trace: str) -> list[Part]:
    try:
        rows = rightsized(jobs, usage, "group", ShrinkPolicy(device_mem_gib=GPU_MEM_GIB_OF_TYPE))
    except LakeError:
        return []
    freed = pl.col("gpus_reclaimable_h") - pl.col("gpus_missing_h")
    recurring = rows.filter("recurring", freed.fill_null(0.0) >= 0.0)
    worst = recurring.sort(freed.fill_null(0.0).cast(pl.Float64), descending=True, maintain_order=True).head(
        SHOWN_GROUPS
    )
    names = shortened([row["group"] or row["user"] for row in worst.iter_rows(named=True)])
    table = [
        {
            "group": name,
            "asks for": _amounts(row, ""),
            "ask instead": _amounts(row, "_target"),
            "GPU-hours freed": round(row["gpus_reclaimable_h"] - row["gpus_missing_h"]),
            "role": row["role"],
            "runs": row["runs"],
        }
        for name, row in zip(names, worst.iter_rows(named=True), strict=True)
    ]
    if not table:
        return []
    said = (
        "Amounts are per instance; targets are measured peaks with a margin. Groups that use more GPUs than they ask "
        "for are not listed: `taut rightsize` shows them as raise. `taut rightsize --patch yaml` prints what to paste"
    )
    title = f"Groups to fix first, {trace}"
    return [Table(name=f"fix-first-{trace}", title=title, rows=pl.DataFrame(table), said=said)]


def _amounts(row: dict[str, float | None], of: str) -> str:
    asked = [(name, row[name] if row[f"{name}{of}"] is None else row[f"{name}{of}"]) for name in RESOURCES]
    return ", ".join(f"{amount:.3g} {_unit(name, amount)}" for name, amount in asked if amount is not None)


def _unit(resource: str, amount: float) -> str:
    return UNITS[resource].removesuffix("s") if amount == 1 else UNITS[resource]


def _reclaimed(jobs: pl.DataFrame, usage: pl.DataFrame, trace: str) -> list[str]:
    """Return a sentence on a simulation with and without reclaiming what running jobs leave idle."""
    settings = SimulationSettings(rate_per_h=RATE_PER_H, replications=DRAWS, slowdown_models=("shared",))
    try:
        result = simulate(job_pool(jobs, usage), {}, settings)
    except (BadUsage, LakeError):
        return []
    rows = {str(row["arm"]): row for row in averaged([row for row in result.rows if row["devices"] == ALL])}
    if not {REQUESTED, RECLAIM, ORACLE} <= rows.keys():
        return []
    as_asked, with_taut = (float(str(rows[arm]["completed"])) for arm in (REQUESTED, RECLAIM))
    killed, slowed = (float(str(rows[RECLAIM][name])) for name in ("killed", "stretched_share"))
    gpus = sum(machine.gpus for machine in settings.cluster.machines)
    more = f" ({with_taut / as_asked - 1.0:+.0%})" if as_asked else ""
    return [
        f"{trace}: had idle resources of running jobs gone to waiting ones, {with_taut:.0f} jobs would have finished "
        f"in 12 h on {gpus:g} GPUs instead of {as_asked:.0f}{more}; {slowed:.1%} of the jobs slowed, "
        f"{killed:.0f} killed (simulated: {RATE_PER_H:g} jobs an hour drawn from the trace, mean of {DRAWS} draws)."
    ]
