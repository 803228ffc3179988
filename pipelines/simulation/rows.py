"""The result rows of a simulation: gains, means over seeds, reclaimed resources; notes, and a closing sentence."""

import math
from collections import defaultdict
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import Final

import numpy as np
import polars as pl

from pipelines.simulation.advice import ORACLE, REQUESTED, Advice
from pipelines.simulation.energy.account import SHOWN as ENERGY_SHOWN
from pipelines.simulation.engine.slowdown import PoolJob
from pipelines.simulation.engine.workload import SECONDS_PER_HOUR
from pipelines.simulation.job_pool import Pool
from pipelines.simulation.measures.metrics import Metrics
from pipelines.simulation.settings import SimulationSettings
from pipelines.simulation.workloads import Gangs, predicted_times
from scheduler_core.gangs import ANY_GPU_TYPE
from scheduler_core.types import RESOURCES, FloatArray

__all__ = ["Row", "assumed_note", "averaged", "conclusion", "shown", "trace_of"]

Row = dict[str, object]

GROUPED_BY: Final = ("trace", "arm", "truth", "devices")
"""Columns that, together with the seed, identify a row; columns that a row lacks are ignored."""

SUMMARY_COLUMNS: Final = (
    "trace",
    "arm",
    "truth",
    "devices",
    "deployed",
    "completed",
    "killed",
    "stretch_p99",
    "jct_mean_s",
    "wait_mean_s",
    *ENERGY_SHOWN,
    "gpu_used_frac",
    "fragmented_gpus",
    "complete_rate",
    "failed",
    "cpu_allocated_frac",
    "cpu_used_frac",
    "mem_allocated_frac",
    "mem_used_frac",
    "gpu_allocated_frac",
    "preempted",
    "stretched_share",
    "jct_p99_s",
)
"""Columns of the summary table, most important first, because a narrow terminal drops the last columns."""


def shown(rows: Sequence[Mapping[str, object]]) -> list[Row]:
    """Return the rows with only the summary columns, without columns that are null in every row."""
    wanted = [name for name in SUMMARY_COLUMNS if any(row.get(name) is not None for row in rows)]
    return [{name: row.get(name) for name in wanted} for row in rows]


def trace_of(pool: Sequence[PoolJob]) -> str:
    """Return the names of the traces of the pool's jobs, joined by +."""
    return "+".join(sorted({entry.job.trace for entry in pool}))


def averaged(rows: Sequence[Mapping[str, object]]) -> list[Row]:
    """Average rows over seeds, one row for each combination of the columns `GROUPED_BY`; means ignore null values.

    Text columns are the same for all seeds, and are kept.
    """
    groups: dict[tuple[object, ...], list[Mapping[str, object]]] = defaultdict(list)
    by = [name for name in GROUPED_BY if rows and name in rows[0]]
    for row in rows:
        groups[tuple(row[name] for name in by)].append(row)
    means: list[Row] = []
    for key, members in groups.items():
        mean: Row = {**dict(zip(by, key, strict=True)), "seeds": len(members)}
        for name in members[0]:
            if name not in (*by, "seed"):
                values = [value for row in members if isinstance(value := row[name], int | float)]
                mean[name] = float(np.mean(values)) if values else members[0][name]
        means.append(mean)
    return means


def gains(metrics: Metrics, requested: Metrics) -> dict[str, float]:
    """Return the gains of an arm over the arm without shrinking.

    Gains of counts and of CompleteRate are relative; gains of utilisation are differences of fractions.
    """
    return {
        "deployed_gain": _relative(metrics.deployed, requested.deployed),
        "completed_gain": _relative(metrics.completed, requested.completed),
        "complete_rate_gain": _relative(metrics.complete_rate, requested.complete_rate),
        "cpu_used_gain_frac": metrics.cpu_used_frac - requested.cpu_used_frac,
        "mem_used_gain_frac": metrics.mem_used_frac - requested.mem_used_frac,
        "gpu_used_gain_frac": metrics.gpu_used_frac - requested.gpu_used_frac,
    }


def _relative(value: float, base: float) -> float:
    return value / base - 1.0 if base else math.nan


def finite(value: float) -> float | None:
    """Return the value, or None for NaN and infinity, which JSON cannot hold."""
    return value if math.isfinite(value) else None


def reclaimed_rows(pool: Pool, advice: Advice) -> list[Row]:
    """Sum requests and targets of the measured jobs: one row per arm, resource and reason of the target."""
    trace = trace_of(pool.jobs)
    entries = [
        {
            "trace": trace,
            "arm": arm,
            "resource": resource,
            "reason": str(answer.reasons[resource]),
            "requested": answer.request.row()[at] * entry.job.instances,
            "target": answer.target.row()[at] * entry.job.instances,
        }
        for arm, answers in advice.items()
        for at, resource in enumerate(RESOURCES)
        for entry, answer, measured in zip(pool.jobs, answers, pool.measured, strict=True)
        if measured and resource in answer.reasons
    ]
    if not entries:
        return []
    requested, target = pl.col("requested"), pl.col("target")
    groups = pl.DataFrame(entries).group_by("trace", "arm", "resource", "reason")
    sums = groups.agg(pl.len().alias("jobs"), requested.sum(), target.sum())
    rows = sums.with_columns(reclaimed_frac=pl.when(requested != 0.0).then((requested - target) / requested))
    order = {name: at for at, name in enumerate((*advice, *RESOURCES))}
    return sorted(rows.to_dicts(), key=lambda row: (order[row["arm"]], order[row["resource"]], row["reason"]))


def assumed_note(pool: Pool) -> str:
    """Return a note on how many jobs ran on GPUs of unknown memory, and on the memory assumed for them."""
    return (
        f"{pool.known.count(False)} of {len(pool.jobs)} jobs ran on devices of unknown memory, taken as "
        f"{pool.assumed_device_mem_gib:g} GiB"
    )


def window_notes(pool: Pool, at_s: FloatArray, settings: SimulationSettings) -> list[str]:
    """Return a note on how many recorded jobs arrive before the horizon; no note if all do."""
    arrived = int((at_s <= settings.horizon_s).sum())
    if arrived == len(at_s):
        return []
    first = datetime.fromtimestamp(pool.jobs[0].job.submit_ts, UTC)
    return [
        f"{arrived} of {len(at_s)} jobs within {settings.horizon_s / SECONDS_PER_HOUR:g} h of the first submission "
        f"({first:%Y-%m-%d %H:%M} UTC); --since moves the start"
    ]


def recorded_notes(pool: Pool, gangs: Gangs) -> list[str]:
    """Return notes on resources that no job requests, jobs divided into instances, and jobs of unknown use."""
    notes = []
    unrequested = [name for at, name in enumerate(RESOURCES) if not gangs.request_units[:, at].any()]
    if unrequested:
        rest = [name for name in RESOURCES if name not in unrequested]
        notes.append(f"no job requests {' or '.join(unrequested)}: only {' and '.join(rest)} are allocated")
    if divided := int((gangs.pieces > 1).sum()):
        notes.append(f"{divided} jobs request more GPUs than a machine has: divided into equal instances")
    unmeasured = pool.measured.count(False)
    if unmeasured:
        notes.append(f"the use of {unmeasured} of {len(pool.jobs)} jobs is unknown: they keep their requests")
    if any(pool.measured) and not all(pool.known):
        notes.append(assumed_note(pool))
    return notes


def type_notes(gangs: Gangs, settings: SimulationSettings) -> list[str]:
    """Return a note if jobs and machines name GPU types, but the settings let jobs run on machines of any type."""
    typed = int((gangs.gpu_type != ANY_GPU_TYPE).sum())
    if settings.discipline.match_gpu_type or not typed or not any(m.gpu_type for m in settings.cluster.machines):
        return []
    return [
        f"GPU types are not matched: {typed} of {len(gangs.gpu_type)} jobs name one, but run on any machine; "
        "--match-gpu-type restricts them to it"
    ]


def prediction_notes(given: Advice, settings: SimulationSettings) -> list[str]:
    """Return a note on jobs without a predicted run time, if the discipline uses predictions."""
    answers = given.get(REQUESTED)
    if settings.needs_predictions is None or answers is None:
        return []
    unknown = int(np.isnan(predicted_times(answers)).sum())
    return [f"{unknown} of {len(answers)} jobs have no predicted run time: they go last"] if unknown else []


TRUTHS: Final = ("shared", "contention", "contention_ideal", "predicted", "unchanged")
"""Slowdown models, ordered by the harm that they can show, most first; the sentence is about the first that was run."""
COVERED: Final = 0.95


def conclusion(rows: Sequence[Row]) -> str:
    """Return the sentence about the rows of all draws, for the arm that finishes most jobs, the oracle aside.

    The interval is that of Student's t over the differences of paired draws: both arms see the same arrivals.

    >>> common = {"truth": "contention", "devices": "all", "killed": 0, "stretched_share": 0.0}
    >>> conclusion([{**common, "seed": 0, "arm": "requested", "completed": 50},
    ...             {**common, "seed": 0, "arm": "shrunk", "completed": 60}])
    'Under contention, shrunk finishes 60 jobs instead of 50 (+20%; one draw, so how sure is unknown), none is killed, \
0.0% run longer.'
    """
    truth = next((truth for truth in TRUTHS if any(row["truth"] == truth for row in rows)), None)
    of_truth = [row for row in rows if row["truth"] == truth and row.get("devices", "all") == "all"]
    arms = list(dict.fromkeys(str(row["arm"]) for row in of_truth if row["arm"] not in (REQUESTED, ORACLE)))
    base = _by_seed(of_truth, REQUESTED, "completed")
    if not arms or not base:
        return "Nothing was changed: all jobs ran as requested, because no use is known or no arm shrinks."
    best = max(arms, key=lambda arm: float(np.mean(list(_by_seed(of_truth, arm, "completed").values()))))
    done = _by_seed(of_truth, best, "completed")
    mean, before = float(np.mean(list(done.values()))), float(np.mean(list(base.values())))
    sure = _interval([done[seed] - base[seed] for seed in base], before)
    more = f"{mean / before - 1.0:+.0%}; " if before else ""
    killed, slowed = (list(_by_seed(of_truth, best, of).values()) for of in ("killed", "stretched_share"))
    harm = f"{np.mean(killed):.3g} killed" if any(killed) else "none is killed"
    longer = f"{np.mean(slowed):.1%} run longer" if slowed else "longer run times are unknown"
    return f"Under {truth}, {best} finishes {mean:.4g} jobs instead of {before:.4g} ({more}{sure}), {harm}, {longer}."


def _by_seed(rows: Sequence[Mapping[str, object]], arm: str, column: str) -> dict[object, float]:
    return {row.get("seed"): float(str(row[column])) for row in rows if row["arm"] == arm and row[column] is not None}


def _interval(differences: Sequence[float], before: float) -> str:
    """Return the interval of the mean difference as text, in percent of the jobs finished before."""
    n = len(differences)
    if n < 2:
        return "one draw, so how sure is unknown"
    from scipy.stats import t

    half = float(t.ppf(0.5 + COVERED / 2.0, n - 1)) * float(np.std(differences, ddof=1)) / math.sqrt(n)
    low, high = (float(np.mean(differences)) + sign * half for sign in (-1.0, 1.0))
    if not before:
        return f"{COVERED:.0%} interval {low:+.3g} to {high:+.3g} jobs, {n} paired draws"
    return f"{COVERED:.0%} interval {low / before:+.0%} to {high / before:+.0%}, {n} paired draws"
