"""The arms of the shrinking studies: alternative ways to size requests, including Algorithm 1 with parts left out.

All arms share one predictor. Percentile rules are in `percentiles`. Called by `designs`.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Final

import numpy as np

from pipelines.simulation.advice import ORACLE, REQUESTED, SHRUNK, UNGUARDED, at_request, oracle_of, oracle_policy
from pipelines.simulation.job_pool import Pool
from pipelines.studies.shrinking.percentiles import RULES, Rule, WithUse, past_use
from scheduler_core.recommendations import advised
from scheduler_core.shrink import PAPER_ALPHA0, ShrinkPolicy, shrink
from scheduler_core.types import FloatArray, Job, Predictor, Recommendation


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked:
    """Inputs of all arms: the pool of jobs, a predictor, and the parameters of Algorithm 1.

    The parameters include the memory sizes of the pool's GPU types.
    """

    pool: Pool
    predictor: Predictor
    policy: ShrinkPolicy

    @property
    def jobs(self) -> list[Job]:
        """Return the jobs of the pool, in its order."""
        return [entry.job for entry in self.pool.jobs]


@dataclass(frozen=True, slots=True, kw_only=True)
class Arm:
    """One way to size requests: a description (`what`), and the function that returns every job's recommendation."""

    what: str
    give: Callable[[Asked], Sequence[Recommendation]]


def asked_of(pool: Pool, predictor: Predictor, policy: ShrinkPolicy) -> Asked:
    """Return the inputs of the arms, with the memory sizes of the pool's GPU types filled into the policy."""
    known = replace(policy, device_mem_gib=pool.device_mem_gib, assumed_device_mem_gib=pool.assumed_device_mem_gib)
    return Asked(pool=pool, predictor=predictor, policy=known)


def advice_of(asked: Asked, arms: Mapping[str, Arm]) -> dict[str, list[Recommendation]]:
    """Return the recommendations of every arm, and as the first arm `requested`, in which requests are unchanged.

    In all arms, the oracle's included, a job's run time is predicted for its original request. So queue orders see
    the same run times in every arm, and arms differ only in the sizes of requests.
    """
    run_s = run_times(asked, requests_of(asked.jobs))
    given = {
        name: advised(asked.jobs, lambda _, arm=arm: arm.give(asked))  # type: ignore[misc]  # a default binds the arm
        for name, arm in arms.items()
    }
    standing_all = [at_request(answer) for answer in next(iter(given.values()))]
    return {
        name: [replace(answer, run_time_p50_s=known) for answer, known in zip(answers, run_s.tolist(), strict=True)]
        for name, answers in {REQUESTED: standing_all, **given}.items()
    }


def run_times(asked: Asked, requests: FloatArray) -> FloatArray:
    """Return the predicted p50 run time of every job (n,) if it had these requests (n, 3)."""
    times: FloatArray = asked.predictor.run_times(asked.jobs, np.arange(len(requests)), requests).p50
    return times


def requests_of(jobs: Sequence[Job]) -> FloatArray:
    """Return the jobs' requests as an array (n, 3) of CPU cores, memory in GiB, and GPUs."""
    return np.array([job.request.row() for job in jobs], dtype=np.float64)


def guarded(asked: Asked) -> list[Recommendation]:
    """Shrink by Algorithm 1 with floors: use importance, the run-time threshold, and floors from predicted peak use."""
    return shrink(asked.jobs, asked.predictor, replace(asked.policy, guard="usage"))


def unguarded(asked: Asked) -> list[Recommendation]:
    """Shrink by Algorithm 1 of Yang, Hong and Tang: use importance and the run-time threshold, but no floors."""
    return shrink(asked.jobs, asked.predictor, replace(asked.policy, guard="none", alpha0=PAPER_ALPHA0))


def floors_only(asked: Asked) -> list[Recommendation]:
    """Shrink every resource to the larger of floor and smallest candidate share, ignoring importance and run time."""
    floors = WithUse(asked.predictor, use=asked.predictor.peak_use(asked.jobs))
    return shrink(asked.jobs, floors, replace(asked.policy, guard="usage"))


def importance_held(asked: Asked) -> list[Recommendation]:
    """Shrink as `guarded`, but never shrink important resources.

    `guarded` ignores importance for jobs with enough measured earlier runs (`sure_runs`).
    """
    return shrink(asked.jobs, asked.predictor, replace(asked.policy, guard="usage", sure_runs=math.inf))


def oracle(asked: Asked) -> list[Recommendation]:
    """Set every request to what the job used in its recorded run."""
    pool = asked.pool
    return shrink(asked.jobs, oracle_of(pool), oracle_policy(pool.device_mem_gib, pool.assumed_device_mem_gib))


def sized_by(asked: Asked, *, rule: Rule) -> list[Recommendation]:
    """Size every job by a percentile rule over its group's earlier runs; without earlier runs keep its request."""
    known = WithUse(asked.predictor, use=past_use(asked.pool.frame, rule))
    policy = replace(
        asked.policy,
        guard="usage",
        alpha0=0.0,
        alpha_step=1.0,
        min_runs=1,
        minimum_change=0.0,
        cpu_margin=rule.margin,
        mem_margin=rule.margin,
        gpu_margin=rule.margin,
        gpu_mem_margin=rule.margin,
    )
    return shrink(asked.jobs, known, policy)


EXPERIMENT_ARMS: Final[Mapping[str, Arm]] = {
    SHRUNK: Arm(what="Algorithm 1 above floors of peak use", give=guarded),
    UNGUARDED: Arm(what="Algorithm 1 as in the paper, without floors", give=unguarded),
    ORACLE: Arm(what="what each job truly needed", give=oracle),
}
"""Arms by name, in the order in which tables list them after `requested`."""

ABLATION_ARMS: Final[Mapping[str, Arm]] = {
    UNGUARDED: Arm(what="run-time threshold and importance: the paper", give=unguarded),
    "floors_only": Arm(what="floors alone", give=floors_only),
    "importance_held": Arm(what="floors, importance and threshold", give=importance_held),
    SHRUNK: Arm(what="the same, importance only where little was measured", give=guarded),
    **{name: Arm(what=rule.what, give=partial(sized_by, rule=rule)) for name, rule in RULES.items()},
    ORACLE: Arm(what="what each job truly needed", give=oracle),
}
"""Arms by name, in the order in which tables list them after `requested`."""
