"""Slack (requests beyond use): how much of it each arm leaves, for what reasons, and what waiting jobs lack.

Pure functions of the recommendations; nothing is simulated here. Called by `tables`.
"""

from collections import defaultdict
from collections.abc import Sequence
from typing import Final

import numpy as np

from pipelines.simulation.advice import ORACLE, REQUESTED, Advice
from pipelines.simulation.engine.workload import SECONDS_PER_HOUR
from pipelines.simulation.job_pool import Pool
from pipelines.studies.shrinking.cases import populations, weights_of
from pipelines.studies.shrinking.goal import BINDS_FROM, TRUTH
from pipelines.studies.shrinking.runs import SHORT
from pipelines.studies.study import Row
from scheduler_core.types import RESOURCES, FloatArray, Reason, Recommendation

UNIT: Final = {"cpu_cores": "core-hours", "mem_gib": "GiB-hours", "gpus": "GPU-hours"}


def slack_rows(pool: Pool, advice: Advice) -> list[Row]:
    """Return resource-hours: one row per population, arm, task type, resource and reason of the recommendation.

    The hours are averages per arriving job of the mix 5:15:15:65 of Yang, Hong and Tang. Columns: `requested` is the
    request times instances times run time; `needed` is the same with the oracle's target instead of the request, and
    `given` with the arm's target. `left_share` is `given` minus `needed`, divided by the total slack of the resource.
    """
    rows: list[Row] = []
    for (gnn, devices), members in populations(pool).items():
        weights = _weights(pool, members.tolist(), gnn)
        requested, needed = (_resource_h(pool, advice[arm]) * weights[:, None] for arm in (REQUESTED, ORACLE))
        slack = (requested - needed).sum(axis=0)
        for arm, answers in advice.items():
            if arm in (REQUESTED, ORACLE):
                continue
            given = _resource_h(pool, answers) * weights[:, None]
            sums: dict[tuple[str, int, str], FloatArray] = defaultdict(lambda: np.zeros(4))
            for row in members.tolist():
                kind = pool.jobs[row].job.task_type
                for at, resource in enumerate(RESOURCES):
                    reason = str(answers[row].reasons.get(resource, "none"))
                    sums[kind, at, reason] += [1.0, requested[row, at], needed[row, at], given[row, at]]
            for (kind, at, reason), (jobs, asked, need, got) in sorted(sums.items()):
                rows.append(
                    {
                        "gnn": gnn,
                        "devices": devices,
                        "arm": arm,
                        "task_type": kind,
                        "resource": RESOURCES[at],
                        "unit": UNIT[RESOURCES[at]],
                        "reason": reason,
                        "jobs": int(jobs),
                        "requested": asked,
                        "needed": need,
                        "given": got,
                        "left_share": (got - need) / slack[at] if slack[at] > 0.0 else float("nan"),
                    }
                )
    return rows


def _weights(pool: Pool, members: list[int], gnn: str) -> FloatArray:
    """Return the probability of each job of the pool (n,) to be drawn in the mix 5:15:15:65; 0 for non-members."""
    kinds = [pool.jobs[row].job.task_type for row in members]
    mix = {kind: weight for kind, weight in weights_of(gnn).items() if kind in kinds}
    weights = np.zeros(len(pool.jobs))
    for row, kind in zip(members, kinds, strict=True):
        weights[row] = mix[kind] / sum(mix.values()) / kinds.count(kind)
    return weights


def _resource_h(pool: Pool, answers: Sequence[Recommendation]) -> FloatArray:
    """Return resource-hours of each job (n, 3): recommended size times instances times recorded run time."""
    targets = np.array([answer.target.row() for answer in answers], dtype=np.float64)
    hours = [entry.measured.run_s / SECONDS_PER_HOUR * entry.job.instances for entry in pool.jobs]
    return np.asarray(targets * np.array(hours)[:, None], dtype=np.float64)


def binding_rows(harm: Sequence[Row], slack: Sequence[Row]) -> list[Row]:
    """Return one row per population, arm and resource under contention: the jobs that lack it, and the slack left.

    Columns: `lacked_share` is the share of waiting jobs that lack the resource; `binds` tells whether it is at least
    half. `left_share` is the share of the slack that the arm leaves. `left_by` is the reason of recommendations that
    leaves most slack, `left_by_share` the share that it leaves, and `left_by_type` the task type with most of that.
    `floor_share` is the share left because of floors above the use.
    """
    left: dict[tuple[object, ...], list[Row]] = defaultdict(list)
    for row in slack:
        left[row["gnn"], row["devices"], row["arm"], row["resource"]].append(row)
    rows: list[Row] = []
    for place in (row for row in harm if row["truth"] == TRUTH):
        for resource, short in SHORT.items():
            if kept := left.get((place["gnn"], place["devices"], place["arm"], resource)):
                lacked = _number(place[f"{short}_lacked_share"])
                said = {name: place[name] for name in ("gnn", "devices", "truth", "arm")}
                found = {"resource": resource, "lacked_share": lacked, "binds": lacked >= BINDS_FROM}
                rows.append({**said, **found, **_left(kept)})
    return rows


def _left(kept: Sequence[Row]) -> Row:
    by_reason: dict[str, float] = defaultdict(float)
    for row in kept:
        by_reason[str(row["reason"])] += _number(row["left_share"])
    reason = max(by_reason, key=lambda name: by_reason[name])
    most = max((row for row in kept if row["reason"] == reason), key=lambda row: _number(row["left_share"]))
    return {
        "left_share": sum(by_reason.values()),
        "left_by": reason,
        "left_by_share": by_reason[reason],
        "left_by_type": most["task_type"],
        "floor_share": by_reason.get(Reason.FLOOR, 0.0),
    }


def _number(value: object) -> float:
    return float(str(value))
