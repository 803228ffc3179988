"""Who is given what: the arms of a simulation, each with one recommendation per job of the pool.

An arm comes from a scale (Algorithm 1 with its predictor and policy filled in, wherever the predictor runs).
Called by `pipelines.simulation.simulate`, the commands and the experiments.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Final

import numpy as np

from pipelines.simulation.engine.predictors import OraclePredictor, oracle_policy
from pipelines.simulation.job_pool import Pool
from pipelines.simulation.simulation_settings import SimulationSettings
from scheduler_core.recommendations import Scale, advised
from scheduler_core.shrink import Guard, ShrinkPolicy, shrink
from scheduler_core.types import Predictor, Recommendation

REQUESTED: Final = "requested"
SHRUNK: Final = "shrunk"
UNGUARDED: Final = "unguarded"
ORACLE: Final = "oracle"
ARM_OF_GUARD: Final[Mapping[Guard, str]] = {"usage": SHRUNK, "none": UNGUARDED}

Advice = Mapping[str, Sequence[Recommendation]]
"""By arm, one recommendation per job of the pool."""


def scales_of(predictor: Predictor | None, pool: Pool, settings: SimulationSettings) -> dict[str, Scale]:
    """Return by arm what shrinks with a predictor in this process: one arm for each guard, none without a predictor."""
    if predictor is None:
        return {}
    policies = {
        ARM_OF_GUARD[guard]: replace(
            settings.shrink_policy,
            guard=guard,
            device_mem_gib=pool.device_mem_gib,
            assumed_device_mem_gib=pool.assumed_device_mem_gib,
        )
        for guard in settings.guards
    }
    return {arm: _scale(predictor, policy) for arm, policy in policies.items()}


def oracle_of(pool: Pool) -> OraclePredictor:
    """Return the predictor that knows what every job of the pool did."""
    return OraclePredictor(measured={entry.job: entry.measured for entry in pool.jobs})


def advice(pool: Pool, scales: Mapping[str, Scale]) -> dict[str, list[Recommendation]]:
    """Ask every scale once for the whole pool, and put the oracle's sizes beside them.

    Where no job was measured nobody can tell what a smaller request would do: the predictions stand, the requests too,
    and there is no arm but `requested`. Among measured jobs, those that were not keep their requests in every arm.
    """
    jobs = [entry.job for entry in pool.jobs]
    given = {arm: advised(jobs, scale) for arm, scale in scales.items()}
    known = next((given[arm] for arm in (SHRUNK, *given) if arm in given), None)
    arms = {} if known is None else {REQUESTED: [at_request(answer) for answer in known]}
    if not any(pool.measured):
        return arms
    exact = oracle_policy(pool.device_mem_gib, pool.assumed_device_mem_gib)
    arms |= given | {ORACLE: shrink(jobs, oracle_of(pool), exact)}
    return {arm: _where(pool.measured, answers) for arm, answers in arms.items()}


def at_request(answer: Recommendation) -> Recommendation:
    """Return the recommendation with the request standing; its predicted run time stays."""
    return replace(answer, target=answer.request, run_time_change=0.0)


def model_decided_share(answers: Sequence[Recommendation]) -> float:
    """Return how many recommendations the run-time model decided otherwise than the floors, as a share."""
    return float(np.mean([answer.model_decided for answer in answers]))


def _scale(predictor: Predictor, policy: ShrinkPolicy) -> Scale:
    return lambda jobs: shrink(jobs, predictor, policy)


def _where(measured: Sequence[bool], answers: Sequence[Recommendation]) -> list[Recommendation]:
    return [answer if known else at_request(answer) for known, answer in zip(measured, answers, strict=True)]
