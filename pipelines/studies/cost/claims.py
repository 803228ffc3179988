"""The bars of the experiment on costs, each with what was measured, its interval, and whether it is met.

Pure functions of the runs' rows. Called by `pipelines.studies.cost.experiment`.
"""

import math
from collections.abc import Sequence
from typing import Final

import polars as pl

from pipelines.studies.cost.arms import AHEAD, GREEDY, RELINKED, as_asked, first_principle, preemptive
from pipelines.studies.cost.studies import EXACT, PREEMPTING
from pipelines.studies.cost.tables import DECISIONS, PLAN, deviations, net_pct, of, saving_pct
from pipelines.studies.intervals import Interval, mean
from pipelines.studies.study import Row

LEAST_SAVING_PCT: Final = 30.0
PUBLISHED_SAVING: Final = "30 to 62 % lower, or better"
MOST_OFF_PCT: Final = 13.0
FORESEEN: Final = {
    PLAN: "that of the plan run with predicted times",
    DECISIONS: "what its decisions had foreseen",
}

METHODS: Final = ((EXACT, first_principle()), (PREEMPTING, tuple(preemptive())))
"""By the study they are run in: as in the source, and with leave to preempt."""

MET, MISSED = "met", "missed"


def claims(runs: pl.DataFrame, at_loads: Sequence[float]) -> list[Row]:
    """Return a row per bar: `claim, bar, measured, low, high, verdict`; percentages, judged by the measured mean.

    The methods as the source has them, which never stop a job, come first; then the same ones with leave to preempt.
    """
    against = [
        row
        for study, arms in METHODS
        for ours in (AHEAD, RELINKED)
        for row in _against_methods(runs, at_loads, ours, study, arms)
    ]
    chances = [_chance(runs, at_loads, ours) for ours in (RELINKED, AHEAD)]
    return [*against, *_net(runs, at_loads), *_deviation(runs), *chances]


def _against_methods(
    runs: pl.DataFrame, at_loads: Sequence[float], name: str, study: str, arms: Sequence[str]
) -> list[Row]:
    loads = ", ".join(f"{load:g}" for load in at_loads)
    ours = of(runs, EXACT, name, "total_usd", at_loads)
    rows: list[Row] = []
    for arm in arms:
        found = saving_pct(ours, of(runs, study, arm, "total_usd", at_loads))
        told = f"{name}: mean cost below {arm}, % (loads {loads})"
        rows.append(_claim(told, PUBLISHED_SAVING, found, met=found.value >= LEAST_SAVING_PCT))
    cells = {
        (load, arm): saving_pct(of(runs, EXACT, name, "total_usd", [load]), of(runs, study, arm, "total_usd", [load]))
        for load in at_loads
        for arm in arms
    }
    (load, arm), least = min(cells.items(), key=lambda cell: cell[1].value)
    told = f"{name}: least of these by load, % ({arm} at {load:g})"
    return [*rows, _claim(told, PUBLISHED_SAVING, least, met=least.value >= LEAST_SAVING_PCT)]


def _net(runs: pl.DataFrame, at_loads: Sequence[float]) -> list[Row]:
    """Return a row per method that gives what is asked for: the saving above the tardiness it cannot avoid."""
    rows: list[Row] = []
    for study, arm in ((study, arm) for study, arms in METHODS for arm in arms if as_asked(arm)):
        held = ((EXACT, AHEAD), (study, arm))
        figures = [(*each, name) for name in ("total_usd", "unavoidable_usd") for each in held]
        found = net_pct(*(of(runs, *each, at_loads) for each in figures))
        told = f"{AHEAD}: net of what cannot be avoided as asked, mean cost below {arm}, %"
        rows.append(_claim(told, PUBLISHED_SAVING, found, met=found.value >= LEAST_SAVING_PCT))
    return rows


def as_asked_note(runs: pl.DataFrame, at_loads: Sequence[float]) -> str:
    """Return what the methods that give what is asked for cannot win, as a sentence."""
    arm = next(filter(as_asked, first_principle()))
    share, usd = (of(runs, EXACT, arm, name, at_loads).mean() for name in ("infeasible_share", "unavoidable_usd"))
    return (
        f"{share:.0%} of the jobs cannot meet their due date with the GPUs they ask for, not on an empty cluster: "
        f"that is {usd:.0f} USD of tardiness a run for every 'fixed' method; the claims 'net of' take it off"
    )


def _deviation(runs: pl.DataFrame) -> list[Row]:
    rows: list[Row] = []
    for name, what in FORESEEN.items():
        for load, off in deviations(runs, name).items():
            told = f"{AHEAD}: realised cost off {what}, %, load {load:g}"
            worst = Interval(value=float(off.max()), low=math.nan, high=math.nan)
            for found, which in ((mean(off), "mean"), (worst, "worst run")):
                rows.append(
                    _claim(f"{told}, {which}", f"under {MOST_OFF_PCT:g}", found, met=found.value < MOST_OFF_PCT)
                )
    return rows


def _chance(runs: pl.DataFrame, at_loads: Sequence[float], ours: str) -> Row:
    found = saving_pct(*(of(runs, EXACT, arm, "total_usd", at_loads) for arm in (ours, GREEDY)))
    told = f"{ours}: mean cost below the greedy's, %"
    return _claim(told, "above 0 with its interval", found, met=found.low > 0.0)


def _claim(claim: str, bar: str, found: Interval, *, met: bool) -> Row:
    return {
        "claim": claim,
        "bar": bar,
        "measured": found.value,
        "low": found.low,
        "high": found.high,
        "verdict": MET if met else MISSED,
    }
