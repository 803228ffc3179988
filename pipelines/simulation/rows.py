"""Build the result rows of a simulation (gains, means over seeds, reclaimed resources), and notes on assumptions.

Pure functions.
"""

import math
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import Final

import numpy as np

from pipelines.simulation.advice import REQUESTED, Advice
from pipelines.simulation.energy.tables import SHOWN as ENERGY_SHOWN
from pipelines.simulation.engine.slowdown import PoolJob
from pipelines.simulation.engine.workload import SECONDS_PER_HOUR
from pipelines.simulation.job_pool import Pool
from pipelines.simulation.measures.metrics import Metrics
from pipelines.simulation.settings import SimulationSettings
from pipelines.simulation.workloads import Gangs, predicted_times
from scheduler_core.gangs import ANY_GPU_TYPE
from scheduler_core.types import RESOURCES, FloatArray, Recommendation

__all__ = ["Row", "averaged", "shown", "trace_of"]

Row = dict[str, object]

GROUPED_BY: Final = ("trace", "arm", "truth", "devices", "shift")
"""Columns that, together with the seed, identify a row; columns that a row lacks are ignored."""

SUMMARY_COLUMNS: Final = (
    "trace",
    "arm",
    "truth",
    "devices",
    "shift",
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
    "interrupted",
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


def _share_saved(target: float, requested: float) -> float:
    return (requested - target) / requested if requested else math.nan


def finite(value: float) -> float | None:
    """Return the value, or None for NaN and infinity, which JSON cannot hold."""
    return value if math.isfinite(value) else None


def reclaimed_rows(arm: str, pool: Sequence[PoolJob], answers: Sequence[Recommendation]) -> list[Row]:
    """Sum the requests and targets of all jobs of the pool: one row per resource and reason of the target."""
    jobs: Counter[tuple[str, str]] = Counter()
    requested: dict[tuple[str, str], float] = defaultdict(float)
    target: dict[tuple[str, str], float] = defaultdict(float)
    for entry, answer in zip(pool, answers, strict=True):
        for at, resource in enumerate(RESOURCES):
            if resource not in answer.reasons:
                continue
            key = (resource, str(answer.reasons[resource]))
            jobs[key] += 1
            requested[key] += answer.request.row()[at] * entry.job.instances
            target[key] += answer.target.row()[at] * entry.job.instances
    return [
        {
            "trace": trace_of(pool),
            "arm": arm,
            "resource": resource,
            "reason": reason,
            "jobs": jobs[resource, reason],
            "requested": requested[resource, reason],
            "target": target[resource, reason],
            "reclaimed_frac": finite(_share_saved(target[resource, reason], requested[resource, reason])),
        }
        for resource in RESOURCES
        for reason in sorted(reason for at, reason in jobs if at == resource)
    ]


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
    unknown = int(np.isnan(predicted_times(answers)[0]).sum())
    place = "begin at the first level" if settings.discipline.policy == "mlfq" else "go last"
    return [f"{unknown} of {len(answers)} jobs have no predicted run time: they {place}"] if unknown else []
