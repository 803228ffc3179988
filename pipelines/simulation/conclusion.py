"""One sentence about a simulation: what changed, how sure that is, and at what harm."""

import math
from collections.abc import Mapping, Sequence
from typing import Final

import numpy as np

from pipelines.simulation.advice import ORACLE, REQUESTED
from pipelines.simulation.rows import Row

__all__ = ["conclusion"]

TRUTHS: Final = ("shared", "contention", "predicted", "unchanged")
"""Slowdown models, the one that can show most harm first; the sentence is about the first that was run."""
COVERED: Final = 0.95


def conclusion(rows: Sequence[Row]) -> str:
    """Return the sentence about the rows of all draws, for the arm that finishes most jobs, the oracle aside.

    The interval is that of Student's t over the differences of paired draws: both arms see the same arrivals.

    >>> common = {"truth": "contention", "devices": "all", "killed": 0, "stretched_share": 0.0}
    >>> conclusion([{**common, "seed": 0, "arm": "requested", "completed": 50},
    ...             {**common, "seed": 0, "arm": "shrunk", "completed": 60}])
    'Under contention, shrunk finishes 60 jobs instead of 50 (+20%; one draw, so how sure is unknown), none is killed, \
0.0% run longer.'
    """
    truth = next((truth for truth in TRUTHS if any(row["truth"] == truth for row in rows)), None)
    told = [row for row in rows if row["truth"] == truth and row.get("devices", "all") == "all"]
    arms = list(dict.fromkeys(str(row["arm"]) for row in told if row["arm"] not in (REQUESTED, ORACLE)))
    base = _by_seed(told, REQUESTED, "completed")
    if not arms or not base:
        return "Nothing was changed: all jobs ran as requested, because no use is known or no arm shrinks."
    best = max(arms, key=lambda arm: float(np.mean(list(_by_seed(told, arm, "completed").values()))))
    done = _by_seed(told, best, "completed")
    mean, before = float(np.mean(list(done.values()))), float(np.mean(list(base.values())))
    sure = _interval([done[seed] - base[seed] for seed in base], before)
    more = f"{mean / before - 1.0:+.0%}; " if before else ""
    killed, slowed = (list(_by_seed(told, best, of).values()) for of in ("killed", "stretched_share"))
    harm = f"{np.mean(killed):.3g} killed" if any(killed) else "none is killed"
    longer = f"{np.mean(slowed):.1%} run longer" if slowed else "longer run times are unknown"
    return f"Under {truth}, {best} finishes {mean:.4g} jobs instead of {before:.4g} ({more}{sure}), {harm}, {longer}."


def _by_seed(rows: Sequence[Mapping[str, object]], arm: str, column: str) -> dict[object, float]:
    return {row.get("seed"): float(str(row[column])) for row in rows if row["arm"] == arm and row[column] is not None}


def _interval(differences: Sequence[float], before: float) -> str:
    """Return the interval of the mean difference as text, in percent of the jobs finished before."""
    n = len(differences)
    if n < 2:
        return "one draw, so how sure is unknown"
    from scipy.stats import t

    half = float(t.ppf(0.5 + COVERED / 2.0, n - 1)) * float(np.std(differences, ddof=1)) / math.sqrt(n)
    low, high = (float(np.mean(differences)) + sign * half for sign in (-1.0, 1.0))
    if not before:
        return f"{COVERED:.0%} interval {low:+.3g} to {high:+.3g} jobs, {n} paired draws"
    return f"{COVERED:.0%} interval {low / before:+.0%} to {high / before:+.0%}, {n} paired draws"
