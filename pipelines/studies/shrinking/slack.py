"""Where the slack went: of what the drawn jobs request beyond their need, how much each reason gives back or leaves.

Pure functions of the advice; nothing is simulated here. Called by `experiment`.
"""

from collections import defaultdict
from collections.abc import Sequence
from typing import Final

import numpy as np

from pipelines.simulation.advice import ORACLE, REQUESTED, Advice
from pipelines.simulation.engine.arrivals import SECONDS_PER_HOUR
from pipelines.simulation.job_pool import Pool
from pipelines.studies.shrinking.cases import MIXES, PAPER, WITH, populations
from pipelines.studies.shrinking.claims import Row
from scheduler_core.types import RESOURCES, FloatArray, Recommendation

UNIT: Final = {"cpu_cores": "core-hours", "mem_gib": "GiB-hours", "gpus": "GPU-hours"}


def slack_rows(pool: Pool, advice: Advice) -> list[Row]:
    """Return, by arm, type, resource and reason, resource-hours per arrival of the paper's mix.

    `requested` is request times instances times run time, `needed` the same of what the oracle gives, `given` of the
    arm. `left_share` is what stays between the two, as a share of all slack of the resource over all types and reasons:
    which floor, or what else, stands between the arm and the oracle.
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
    """Return how likely an arrival of the paper's mix is each job of the pool (n,), 0 for those not drawn from."""
    kinds = [pool.jobs[row].job.task_type for row in members]
    mix = {kind: w for kind, w in MIXES[PAPER].items() if kind in kinds and (gnn == WITH or kind != "gnn")}
    weights = np.zeros(len(pool.jobs))
    for row, kind in zip(members, kinds, strict=True):
        weights[row] = mix[kind] / sum(mix.values()) / kinds.count(kind)
    return weights


def _resource_h(pool: Pool, answers: Sequence[Recommendation]) -> FloatArray:
    """Return what each job's gang holds over its recorded run time (n, 3)."""
    targets = np.array([answer.target.row() for answer in answers], dtype=np.float64)
    hours = [entry.measured.run_s / SECONDS_PER_HOUR * entry.job.instances for entry in pool.jobs]
    return np.asarray(targets * np.array(hours)[:, None], dtype=np.float64)
