"""Elastic engine: jobs that may be stopped, moved and sped up or down while they run; time, progress and restarts.

Decisions come from one function, true speeds from another; nothing here depends on how a decision is made. Energy,
carbon and cost are computed from the returned spans.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final, Protocol

import numpy as np

from scheduler_core.types import BoolArray, FloatArray, IntArray

__all__ = ["NOWHERE", "Choice", "Progress", "Span", "run_elastic"]

NOWHERE: Final = -1
"""Place of a job without GPUs."""

INSTANT_S: Final = 1e-6
"""Ends closer together than these seconds are simultaneous, and a shorter remaining time counts as 0."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Choice:
    """A decision for n jobs: GPUs, frequency index and place of each, and when to decide again.

    `gpus` and `step` are (n,), 0 GPUs for a job that waits. `place` is (n,) or (n, M): a node of each job, or its GPUs
    on each of M nodes. The next decision is at `until_s` at the latest, and with `at_events` at the next arrival or
    end of a job.
    """

    gpus: IntArray
    step: IntArray
    place: IntArray
    until_s: float
    at_events: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Span:
    """The time between two decisions, and the n jobs that held GPUs for `ran_s`, including restarts of `paused_s`."""

    from_s: float
    until_s: float
    job: IntArray
    gpus: IntArray
    step: IntArray
    place: IntArray
    ran_s: FloatArray
    paused_s: FloatArray


@dataclass(slots=True, kw_only=True, eq=False)
class Progress:
    """State of J jobs: fraction `left` of their work, the GPUs they hold, and the rest `owed_s` of a restart.

    `finish_s` is NaN until the job ends. `changes` counts how often a running job was stopped, moved or given another
    number of GPUs.
    """

    left: FloatArray
    gpus: IntArray
    step: IntArray
    place: IntArray
    owed_s: FloatArray
    finish_s: FloatArray
    changes: IntArray

    @classmethod
    def begun(cls, jobs: int, nodes: int | None) -> "Progress":
        """Return the state of jobs that have not started; `nodes` is M if a job may span nodes, else None."""
        none = np.zeros(jobs, np.int64)
        return cls(
            left=np.ones(jobs),
            gpus=none,
            step=none.copy(),
            place=np.full(jobs, NOWHERE, np.int64) if nodes is None else np.zeros((jobs, nodes), np.int64),
            owed_s=np.zeros(jobs),
            finish_s=np.full(jobs, np.nan),
            changes=none.copy(),
        )

    def settle(self, rows: IntArray, choice: Choice, restart_s: float) -> None:
        """Carry out a decision for the jobs `rows`; a stopped, moved or resized job must restart.

        An interrupted restart begins again. A new frequency needs no restart.
        """
        moved = self.place[rows] != choice.place
        moved = moved.any(axis=1) if moved.ndim > 1 else moved
        changed = (self.gpus[rows] > 0) & (moved | (self.gpus[rows] != choice.gpus))
        self.owed_s[rows[changed]] = restart_s
        self.changes[rows[changed]] += 1
        self.gpus[rows], self.step[rows], self.place[rows] = choice.gpus, choice.step, choice.place

    def release(self, rows: IntArray) -> None:
        """Take the GPUs away from the jobs `rows`."""
        self.gpus[rows] = 0
        self.place[rows] = NOWHERE if self.place.ndim == 1 else 0


class Decide(Protocol):
    """Function that decides for the jobs `here` at a moment; None ends the simulation."""

    def __call__(self, now_s: float, here: IntArray, state: Progress, last: Span | None) -> Choice | None:
        """Return the decision; `last` is the span since the previous one."""


Runs = Callable[[IntArray, Choice], FloatArray]
"""Function that returns the true run time in seconds of whole jobs (n,) under a decision that gives each some GPUs."""


def run_elastic(
    submit_s: FloatArray,
    decide: Decide,
    runs: Runs,
    *,
    restart_s: float = 0.0,
    nodes: int | None = None,
    from_s: float | None = None,
) -> tuple[Progress, list[Span]]:
    """Simulate jobs from `from_s` (the first submission by default) until all have ended or `decide` returns None.

    `submit_s` (J,) ascends. `restart_s` is what a stop, a move or a new number of GPUs costs a job: writing and reading
    a checkpoint. `nodes` is M if a job may span nodes. Equal inputs give equal results.
    """
    state, spans = Progress.begun(len(submit_s), nodes), list[Span]()
    now_s = from_s if from_s is not None else float(submit_s.min(initial=np.inf))
    while np.isnan(state.finish_s).any():
        here = np.flatnonzero((submit_s <= now_s + INSTANT_S) & np.isnan(state.finish_s))
        choice = decide(now_s, here, state, spans[-1] if spans else None)
        if choice is None:
            break
        state.settle(here, choice, restart_s)
        spans.append(_advanced(submit_s, state, here, choice, runs, now_s))
        now_s = spans[-1].until_s
    return state, spans


def _advanced(submit_s: FloatArray, state: Progress, here: IntArray, choice: Choice, runs: Runs, now_s: float) -> Span:
    """Run the jobs until the next decision, end those that are done, and return the span."""
    held: BoolArray = choice.gpus > 0
    job = here[held]
    mine = Choice(
        gpus=choice.gpus[held],
        step=choice.step[held],
        place=choice.place[held],
        until_s=choice.until_s,
        at_events=choice.at_events,
    )
    whole_s = runs(job, mine)
    left_s = state.owed_s[job] + state.left[job] * whole_s
    until_s = choice.until_s
    if choice.at_events:
        after = int(np.searchsorted(submit_s, now_s + INSTANT_S, side="right"))
        arrival_s = float(submit_s[after]) if after < len(submit_s) else np.inf
        until_s = min(until_s, arrival_s, now_s + float(left_s.min(initial=np.inf)))
    ran_s = np.minimum(left_s, until_s - now_s)
    paused_s = np.minimum(state.owed_s[job], ran_s)
    state.owed_s[job] -= paused_s
    state.left[job] -= (ran_s - paused_s) / whole_s
    done = left_s <= until_s - now_s + INSTANT_S
    state.left[job[done]] = 0.0
    state.finish_s[job[done]] = now_s + ran_s[done]
    state.release(job[done])
    return Span(
        from_s=now_s,
        until_s=until_s,
        job=job,
        gpus=mine.gpus,
        step=mine.step,
        place=mine.place,
        ran_s=ran_s,
        paused_s=paused_s,
    )
