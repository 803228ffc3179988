"""Predictors of `taut simulate` by name, and for each arm that shrinks requests a `Scale`.

A scale is a function from jobs to recommendations, by Algorithm 1 with that predictor.
"""

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Final

import numpy as np

from modelserve.client.synchronous import HttpScale
from modelserve.contract.requests import MAX_JOBS
from modelserve.errors import ServiceUnavailable
from pipelines.cli.opening import champions
from pipelines.cli.options import Place
from pipelines.cli.remote import PART_LIMIT_S, TOKEN_VARIABLE, cut_of
from pipelines.simulation.advice import ARM_OF_GUARD, ConstantPredictor, oracle_of, scales_of
from pipelines.simulation.job_pool import Pool
from pipelines.simulation.settings import SimulationSettings
from scheduler_core.shrink import Scale
from scheduler_core.types import Predictor, Reason, Recommendation, Request

PREDICTORS: Final = ("champion", "oracle", "constant", "none")
"""The champion models in this process, the recorded run of each job, the pool's median run time, and no predictor."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Advisers:
    """Functions from jobs to recommendations, by name of the arm that uses them, and notes on their predictor.

    `predictor` is None if there is none in this process.
    """

    scales: Mapping[str, Scale]
    predictor: Predictor | None = None
    notes: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class AdviceContext:
    """Inputs of the functions below: jobs, settings, and the places of the models and of the service's token.

    Without a `token_file` the token is taken from the variable TAUT_TOKEN.
    """

    pool: Pool
    settings: SimulationSettings
    place: Place
    offline: bool
    token_file: Path | None = None


def advisers(name: str, context: AdviceContext) -> Advisers:
    """Return the recommendation functions and notes of a predictor, given its name or the address of a service."""
    if "://" in name:
        return service(name, context)
    predictor, notes = named_predictor(name, context)
    scales = {} if predictor is None else scales_of(predictor, context.pool, context.settings)
    return Advisers(scales=scales, predictor=predictor, notes=notes)


def named_predictor(name: str, context: AdviceContext) -> tuple[Predictor | None, tuple[str, ...]]:
    """Return a predictor of this process by its name, None for `none`, and notes on it."""
    if name == "champion":
        found = champions(context.place, offline=context.offline)
        return found, _cut_notes(context.pool, max(bundle.card.until for bundle in found.bundles.values()))
    if name == "oracle":
        return oracle_of(context.pool), ("predictor oracle: run times and peak use are the recorded ones",)
    if name == "constant":
        run_s = float(np.median([entry.measured.run_s for entry in context.pool.jobs]))
        note = f"predictor constant: {run_s:g} s and no use for every job; requests shrink to the first candidate"
        return ConstantPredictor(run_s=run_s, peak=Request(cpu_cores=0.0, mem_gib=0.0, gpus=0.0)), (note,)
    return None, ()


def service(address: str, context: AdviceContext) -> Advisers:
    """Ask a prediction service: call it once per guard with all jobs of the pool.

    The service's mode is ignored. A job for which it gives no recommendation keeps its request.
    """
    jobs = [entry.job for entry in context.pool.jobs]
    scales: dict[str, Scale] = {}
    notes: list[str] = []
    silent: list[str] = []
    for guard in context.settings.guards:
        with HttpScale(
            address,
            token=None if context.token_file else os.environ.get(TOKEN_VARIABLE) or None,
            token_file=context.token_file,
            deadline_s=min(PART_LIMIT_S * -(-len(jobs) // MAX_JOBS), 86_400.0),
            theta=context.settings.shrink_policy.theta,
            alpha=context.settings.shrink_policy.alpha0,
            guard=guard,
            heed_mode=False,
        ) as scale:
            answers = scale(jobs)
        unanswered = [answer for answer in answers if Reason.PREDICTOR_UNAVAILABLE in answer.reasons.values()]
        silent += [answers[0].note] if len(unanswered) == len(jobs) else []
        if unanswered:
            notes.append(
                f"predictor {address}: {len(unanswered)} of {len(jobs)} jobs ({ARM_OF_GUARD[guard]}) got no answer "
                f"and keep their requests; the first: {unanswered[0].note}"
            )
        scales[ARM_OF_GUARD[guard]] = _fixed(answers)
    if len(silent) == len(scales):
        raise ServiceUnavailable(
            f"--predictor {address}: found no answer for any job, nothing was simulated; the first: {silent[0]}"
        )
    until = cut_of(address, context.token_file, traces={job.trace for job in jobs})
    unknown = f"predictor {address}: training cut unknown: the service's models may have been trained on these jobs"
    return Advisers(scales=scales, notes=(*notes, *([unknown] if until is None else _cut_notes(context.pool, until))))


def _fixed(answers: Sequence[Recommendation]) -> Scale:
    return lambda _: answers


def _cut_notes(pool: Pool, until: datetime) -> tuple[str, ...]:
    """Return a note on how many jobs were submitted before `until`, the end of the models' training data, if any."""
    early = sum(entry.job.submit_ts < until.timestamp() for entry in pool.jobs)
    if not early:
        return ()
    return (
        f"{early} of {len(pool.jobs)} jobs were submitted before the training cut ({until:%Y-%m-%d %H:%M} UTC); "
        "the models may have been trained on them; --since takes later ones only",
    )
