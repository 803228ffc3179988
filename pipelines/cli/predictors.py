"""Who advises in a simulation: by name, the scales (Algorithm 1 with its predictor filled in) of its arms.

No command stands here. Called by `taut simulate`; a predictor elsewhere is one more entry of the registry.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Final

import numpy as np

from pipelines.advice import oracle_of, scales_of
from pipelines.cli.opening import champions
from pipelines.cli.place import Place
from pipelines.errors import BadUsage
from pipelines.job_pool import Pool
from pipelines.simulation_settings import SimulationSettings
from scheduler_core.advice import Scale
from scheduler_core.predictors import ConstantPredictor
from scheduler_core.types import Request


@dataclass(frozen=True, slots=True, kw_only=True)
class Advisers:
    """The arms that shrink, and what has to be said of who advises them."""

    scales: Mapping[str, Scale]
    notes: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked:
    """Over what a simulation asks for advice."""

    pool: Pool
    settings: SimulationSettings
    place: Place
    offline: bool


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


PREDICTORS: Final[Mapping[str, Callable[[Asked], Advisers]]] = {
    "champion": champion,
    "oracle": oracle,
    "constant": constant,
    "none": none,
}


def advisers(name: str, asked: Asked) -> Advisers:
    """Return who advises, by name.

    Raises
    ------
    BadUsage
        If nobody has that name.
    """
    if name not in PREDICTORS:
        raise BadUsage(f"--predictor {name[:80]}: expected one of {', '.join(PREDICTORS)}")
    return PREDICTORS[name](asked)


def _seen(pool: Pool, until: datetime) -> tuple[str, ...]:
    """Say how many of the jobs the models may have learnt from."""
    early = sum(entry.job.submit_ts < until.timestamp() for entry in pool.jobs)
    if not early:
        return ()
    return (
        f"{early} of {len(pool.jobs)} jobs were submitted before the models' cut ({until:%Y-%m-%d %H:%M} UTC) and may "
        "be known to them; --since takes later ones only",
    )
