"""Who advises in a simulation: by name, the scales (Algorithm 1 with its predictor filled in) of its arms.

No command stands here. Called by `taut simulate`.
"""

import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Final

import numpy as np

from modelserve.client.http_scale import HttpScale
from modelserve.contract.requests import MAX_JOBS
from modelserve.errors import ServiceUnavailable
from pipelines.cli.opening import champions
from pipelines.cli.options import Place
from pipelines.cli.remote import PART_LIMIT_S, TOKEN_VARIABLE, cut_of
from pipelines.errors import BadUsage
from pipelines.simulation.advice import ARM_OF_GUARD, oracle_of, scales_of
from pipelines.simulation.engine.predictors import ConstantPredictor
from pipelines.simulation.job_pool import Pool
from pipelines.simulation.simulation_settings import SimulationSettings
from scheduler_core.recommendations import Scale
from scheduler_core.types import Reason, Recommendation, Request


@dataclass(frozen=True, slots=True, kw_only=True)
class Advisers:
    """The arms that shrink, and what has to be said of who advises them."""

    scales: Mapping[str, Scale]
    notes: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked:
    """Over what a simulation asks for advice; `token_file` holds the token of a service (TAUT_TOKEN where None)."""

    pool: Pool
    settings: SimulationSettings
    place: Place
    offline: bool
    token_file: Path | None = None


def champion(asked: Asked) -> Advisers:
    """Take the registry's champions, in this process."""
    predictor = champions(asked.place, offline=asked.offline)
    until = max(bundle.card.until for bundle in predictor.bundles.values())
    return Advisers(scales=scales_of(predictor, asked.pool, asked.settings), notes=_seen(asked.pool, until))


def oracle(asked: Asked) -> Advisers:
    """Know every run before it starts; the parameters of Algorithm 1 still hold for `shrunk`."""
    scales = scales_of(oracle_of(asked.pool), asked.pool, asked.settings)
    return Advisers(scales=scales, notes=("predictor oracle: run times and peak use are those that were recorded",))


def constant(asked: Asked) -> Advisers:
    """Say the same of every job: the median run time, and no use, so that every request goes to the first candidate."""
    run_s = float(np.median([entry.measured.run_s for entry in asked.pool.jobs]))
    predictor = ConstantPredictor(run_s=run_s, peak=Request(cpu_cores=0.0, mem_gib=0.0, gpus=0.0))
    said = f"predictor constant: {run_s:g} s and no use of every job; requests shrink to the first candidate"
    return Advisers(scales=scales_of(predictor, asked.pool, asked.settings), notes=(said,))


def none(asked: Asked) -> Advisers:  # noqa: ARG001 -- every adviser has the one signature
    """Advise nothing."""
    return Advisers(scales={})


def service(address: str, asked: Asked) -> Advisers:
    """Ask the service there about the whole pool, once for each guard, whatever mode it is in.

    A job without an answer keeps its request, and so do all jobs of a guard where the service went away meanwhile.

    Raises
    ------
    ServiceUnavailable
        It answered about no job at all: a simulation of nothing but standing requests would be taken for its advice.
    """
    jobs = [entry.job for entry in asked.pool.jobs]
    scales: dict[str, Scale] = {}
    notes: list[str] = []
    silent: list[str] = []
    for guard in asked.settings.guards:
        with HttpScale(
            address,
            token=None if asked.token_file else os.environ.get(TOKEN_VARIABLE) or None,
            token_file=asked.token_file,
            deadline_s=min(PART_LIMIT_S * -(-len(jobs) // MAX_JOBS), 86_400.0),
            theta=asked.settings.shrink_policy.theta,
            alpha=asked.settings.shrink_policy.alpha0,
            guard=guard,
            heed_mode=False,
        ) as scale:
            answers = scale(jobs)
        unanswered = [answer for answer in answers if Reason.PREDICTOR_UNAVAILABLE in answer.reasons.values()]
        silent += [answers[0].note] if len(unanswered) == len(jobs) else []
        if unanswered:
            notes.append(
                f"predictor {address}: {len(unanswered)} of {len(jobs)} jobs ({ARM_OF_GUARD[guard]}) were not answered "
                f"about and keep their requests; the first: {unanswered[0].note}"
            )
        scales[ARM_OF_GUARD[guard]] = _said(answers)
    if len(silent) == len(scales):
        raise ServiceUnavailable(
            f"--predictor {address}: no job was answered about, nothing was simulated; the first: {silent[0]}"
        )
    until = cut_of(address, asked.token_file, traces={job.trace for job in jobs})
    unknown = f"predictor {address}: cut unknown: the service's models may have seen these jobs"
    return Advisers(scales=scales, notes=(*notes, *([unknown] if until is None else _seen(asked.pool, until))))


PREDICTORS: Final[Mapping[str, Callable[[Asked], Advisers]]] = {
    "champion": champion,
    "oracle": oracle,
    "constant": constant,
    "none": none,
}


def advisers(name: str, asked: Asked) -> Advisers:
    """Return who advises, by name, or by the address of a service.

    Raises
    ------
    BadUsage
        If nobody has that name.
    """
    if name.startswith(("http://", "https://")):
        return service(name, asked)
    if name not in PREDICTORS:
        raise BadUsage(f"--predictor {name[:80]}: expected an address, or one of {', '.join(PREDICTORS)}")
    return PREDICTORS[name](asked)


def _said(answers: Sequence[Recommendation]) -> Scale:
    return lambda _: answers


def _seen(pool: Pool, until: datetime) -> tuple[str, ...]:
    """Say how many of the jobs the models may have learnt from."""
    early = sum(entry.job.submit_ts < until.timestamp() for entry in pool.jobs)
    if not early:
        return ()
    return (
        f"{early} of {len(pool.jobs)} jobs were submitted before the models' cut ({until:%Y-%m-%d %H:%M} UTC) and may "
        "be known to them; --since takes later ones only",
    )
