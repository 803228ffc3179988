"""Ways to size the requests of a pool's jobs at submission, with one predictor: Algorithm 1, and the oracle."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final

import numpy as np

from pipelines.simulation.advice import ORACLE, REQUESTED, SHRUNK, UNGUARDED, at_request, oracle_of, oracle_policy
from pipelines.simulation.job_pool import Pool
from scheduler_core.shrink import PAPER_ALPHA0, ShrinkPolicy, advised, shrink
from scheduler_core.types import FloatArray, Job, Predictor, Recommendation


@dataclass(frozen=True, slots=True, kw_only=True)
class Sizing:
    """The inputs of all arms: a pool of jobs, a predictor, and the parameters of Algorithm 1."""

    pool: Pool
    predictor: Predictor
    policy: ShrinkPolicy

    @property
    def jobs(self) -> list[Job]:
        """Return the jobs of the pool, in its order."""
        return [entry.job for entry in self.pool.jobs]


Size = Callable[[Sizing], Sequence[Recommendation]]
"""An arm: returns the recommendation of every job."""


def sizing(pool: Pool, predictor: Predictor, policy: ShrinkPolicy) -> Sizing:
    """Return the inputs of the arms, with the memory sizes of the pool's GPU types filled into the policy."""
    known = replace(policy, device_mem_gib=pool.device_mem_gib, assumed_device_mem_gib=pool.assumed_device_mem_gib)
    return Sizing(pool=pool, predictor=predictor, policy=known)


def advice_of(inputs: Sizing, arms: Mapping[str, Size]) -> dict[str, list[Recommendation]]:
    """Return the recommendations of every arm, and as the first arm `requested`, in which requests are unchanged.

    In all arms, the oracle's included, a job's run time is predicted for its original request. So queue orders see
    the same run times in every arm, and arms differ only in the sizes of requests.
    """
    run_s = run_times(inputs, requests_of(inputs.jobs)).tolist()
    given = {name: advised(inputs.jobs, lambda _, size=size: size(inputs)) for name, size in arms.items()}  # type: ignore[misc]  # a default binds the arm
    unchanged = [at_request(answer) for answer in next(iter(given.values()))]
    return {
        name: [replace(answer, run_time_p50_s=known) for answer, known in zip(answers, run_s, strict=True)]
        for name, answers in {REQUESTED: unchanged, **given}.items()
    }


def run_times(inputs: Sizing, requests: FloatArray) -> FloatArray:
    """Return the predicted p50 run time of every job (n,) if it had these requests (n, 3)."""
    times: FloatArray = inputs.predictor.run_times(inputs.jobs, np.arange(len(requests)), requests).p50
    return times


def requests_of(jobs: Sequence[Job]) -> FloatArray:
    """Return the jobs' requests as an array (n, 3) of CPU cores, memory in GiB, and GPUs."""
    return np.array([job.request.row() for job in jobs], dtype=np.float64)


def guarded(inputs: Sizing) -> list[Recommendation]:
    """Shrink by Algorithm 1 with floors: importance, the run-time threshold, and floors from predicted peak use."""
    return shrink(inputs.jobs, inputs.predictor, replace(inputs.policy, guard="usage"))


def unguarded(inputs: Sizing) -> list[Recommendation]:
    """Shrink by Algorithm 1 of Yang, Hong and Tang: importance and the run-time threshold, but no floors."""
    return shrink(inputs.jobs, inputs.predictor, replace(inputs.policy, guard="none", alpha0=PAPER_ALPHA0))


def oracle(inputs: Sizing) -> list[Recommendation]:
    """Set every request to what the job used in its recorded run."""
    pool = inputs.pool
    return shrink(inputs.jobs, oracle_of(pool), oracle_policy(pool.device_mem_gib, pool.assumed_device_mem_gib))


ARMS: Final[Mapping[str, Size]] = {SHRUNK: guarded, UNGUARDED: unguarded, ORACLE: oracle}
"""Arms by name, in the order in which tables list them after `requested`."""
