"""Exchanges between two jobs: one gives back GPUs or grams, or changes frequency, the other takes what that frees.

The options worth looking at, and the search; where it starts and which plan is kept is `exchange`'s matter. Called by
`exchange`.
"""

from dataclasses import dataclass
from typing import Final

import numpy as np

from scheduler_core.planning.carbon.relaxation import Options, Relaxed
from scheduler_core.types import FloatArray, IntArray

MOST_OPTIONS: Final = 256
"""Options looked at: of all jobs together, those of least loss at the relaxed prices."""

MOST_EXCHANGES: Final = 64

_ROUNDING: Final = 1e-9


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """What a plan may hold, give off within the period, and postpone."""

    gpus: int
    period_g: float
    postponed: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Candidates:
    """Options as columns (L,): whose, what, how long it then has left, and what it gives off within the period."""

    job: IntArray
    gpus: IntArray
    step: IntArray
    left_s: FloatArray
    period_g: FloatArray


def candidates(options: Options, relaxed: Relaxed) -> Candidates:
    """Return the options of least loss: by how much their price passes that of the job's best, at the relaxed prices.

    An option whose loss is above the distance of a plan from the relaxed bound is in no better plan.
    """
    counts = np.arange(options.left_s.shape[2])
    loss_s = options.left_s + relaxed.s_per_g * options.period_g + relaxed.s_per_gpu * counts
    loss_s -= loss_s.min(axis=(0, 2), keepdims=True)
    # Postponed is postponed, at whatever frequency.
    loss_s[1:, :, 0] = np.inf
    flat = loss_s.ravel()
    kept = np.argpartition(flat, MOST_OPTIONS)[:MOST_OPTIONS] if flat.size > MOST_OPTIONS else np.arange(flat.size)
    kept = np.sort(kept[np.isfinite(flat[kept])])
    step, job, gpus = np.unravel_index(kept, loss_s.shape)
    return Candidates(
        job=job,
        gpus=gpus,
        step=step,
        left_s=options.left_s.ravel()[kept],
        period_g=options.period_g.ravel()[kept],
    )


def exchanged(
    options: Options, found: Candidates, gpus: IntArray, step: IntArray, limits: Limits
) -> tuple[IntArray, IntArray]:
    """Return counts and frequencies (J,) after exchanges, each the one that saves most time, until none saves any."""
    gpus, step = gpus.copy(), step.copy()
    for _ in range(MOST_EXCHANGES):
        best = _best(options, found, gpus, step, limits)
        if not best:
            break
        for option in best:
            gpus[found.job[option]], step[found.job[option]] = found.gpus[option], found.step[option]
    return gpus, step


def _best(options: Options, found: Candidates, gpus: IntArray, step: IntArray, limits: Limits) -> list[int]:
    """Return the one or two options that save most time together within the limits; none if nothing is saved."""
    rows = np.arange(len(gpus))
    left_s, period_g = options.left_s[step, rows, gpus], options.period_g[step, rows, gpus]
    # The option after the last is to leave the other job as it is.
    longer_s = np.append(found.left_s - left_s[found.job], 0.0)
    more_gpus = np.append(found.gpus - gpus[found.job], 0)
    more_g = np.append(found.period_g - period_g[found.job], 0.0)
    more_off = np.append((found.gpus == 0).astype(np.int64) - (gpus[found.job] == 0), 0)
    job = np.append(found.job, -1)
    takes = np.flatnonzero(longer_s < 0.0)
    if not takes.size:
        return []
    fits = more_gpus[takes, None] + more_gpus <= limits.gpus - int(gpus.sum())
    fits &= more_g[takes, None] + more_g <= limits.period_g - float(period_g.sum())
    fits &= more_off[takes, None] + more_off <= limits.postponed - int((gpus == 0).sum())
    fits &= job[takes, None] != job
    saved_s = np.where(fits, -(longer_s[takes, None] + longer_s), -np.inf)
    best = int(saved_s.argmax())
    if not saved_s.flat[best] > _ROUNDING * float(left_s.sum()):
        return []
    take, give = divmod(best, len(longer_s))
    return [option for option in (int(takes[take]), give) if option < len(found.job)]
