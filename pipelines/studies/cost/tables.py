"""Tables and claims of the cost study: means, savings, deviations from prediction, and effects of parameters.

Pure functions of the frame of all runs. Called by `study`.
"""

import math
from collections.abc import Sequence
from typing import Final

import numpy as np
import polars as pl

from pipelines.studies.cost.arms import AHEAD, GREEDY, STRONGEST, as_asked, first_principle, preemptive
from pipelines.studies.cost.runs import FIGURES
from pipelines.studies.cost.settings import BOUND, ELSEWHERE, EXACT, OFF, PREEMPTING, WEIGHTS
from pipelines.studies.intervals import Interval, mean, ratio
from pipelines.studies.study import SEED, Row, summed_up
from scheduler_core.types import FloatArray

PERCENT: Final = 100.0
PLAN, DECISIONS = "plan", "decisions"


def levels(runs: pl.DataFrame) -> list[Row]:
    """Return a row per study, zone, load, value and policy: means over seeds with their intervals."""
    return summed_up(runs, ("study", "zone", "load", "value", "arm"), FIGURES)


def of(runs: pl.DataFrame, study: str, arm: str, figure: str, loads: Sequence[float] | None = None) -> FloatArray:
    """Return one result of a policy for each seed, as the mean over the loads."""
    kept = runs.filter(pl.col("study") == study, pl.col("arm") == arm)
    if loads is not None:
        kept = kept.filter(pl.col("load").is_in(list(loads)))
    return kept.group_by(SEED).agg(pl.col(figure).mean()).sort(SEED)[figure].cast(pl.Float64).to_numpy()


def saving_pct(ours: FloatArray, theirs: FloatArray) -> Interval:
    """Return by how many percent the mean of `ours` is below the mean of `theirs`, with an interval paired by seed."""
    return ratio(theirs - ours, theirs).scaled(PERCENT)


def savings(runs: pl.DataFrame) -> list[Row]:
    """Return a row per study, zone, load and compared policy: what looking ahead saves against it, paired by seed.

    `tardiness_part_pct` and `energy_part_pct` are the saved tardiness and energy in percent of the compared policy's
    total cost; they add up to `saving_pct`. `kept_on_pct` is the saving if the compared policy left idle nodes on.
    `net_pct` is the saving after subtracting each policy's unavoidable tardiness. `unavoidable_usd` is the
    compared policy's.
    """
    rows: list[Row] = []
    for study in (EXACT, OFF, ELSEWHERE):
        own = runs.filter(pl.col("study") == study)
        for (zone, load), group in own.group_by("zone", "load", maintain_order=True):
            for arm in (GREEDY, *first_principle(), STRONGEST):
                if len(group.filter(pl.col("arm") == arm)):
                    rows.append(
                        {"study": study, "zone": zone, "load": load, "against": arm, **_saved(group, study, arm)}
                    )
    return rows


def _saved(runs: pl.DataFrame, study: str, arm: str) -> Row:
    ours, theirs = ({name: of(runs, study, each, name) for name in FIGURES} for each in (AHEAD, arm))
    total = theirs["total_usd"]
    less = {name: theirs[name] - ours[name] for name in ("tardiness_usd", "energy_usd")}
    parts = {
        "saving_pct": saving_pct(ours["total_usd"], total),
        "tardiness_part_pct": ratio(less["tardiness_usd"], total).scaled(PERCENT),
        "energy_part_pct": ratio(less["energy_usd"], total).scaled(PERCENT),
        "energy_saving_pct": saving_pct(ours["energy_usd"], theirs["energy_usd"]),
        "net_pct": net_pct(ours["total_usd"], total, ours["unavoidable_usd"], theirs["unavoidable_usd"]),
        "kept_on_pct": saving_pct(ours["total_usd"], total + theirs["kept_on_usd"]),
    }
    spread = {key: value for name, found in parts.items() for key, value in _spread(name, found).items()}
    return {**spread, "unavoidable_usd": float(theirs["unavoidable_usd"].mean())}


def net_pct(ours: FloatArray, theirs: FloatArray, our_least: FloatArray, their_least: FloatArray) -> Interval:
    """Return the saving in percent after subtracting each policy's unavoidable tardiness, paired by seed."""
    return saving_pct(ours - our_least, theirs - their_least)


def deviations(runs: pl.DataFrame, foreseen: str) -> dict[float, FloatArray]:
    """Return the differences between predicted and realised cost of looking ahead when run times are wrong, by load.

    Differences are absolute, in percent of the realised cost, one per seed. If `foreseen` is `PLAN`, the predicted cost
    is from a simulation of the same jobs in which predicted run times are true; ANDREAS compares its simulation with a
    real cluster in this way. If it is `DECISIONS`, the predicted cost is `Outcome.foreseen_usd`.
    """
    found: dict[float, FloatArray] = {}
    for load in runs.filter(pl.col("study") == OFF)["load"].unique(maintain_order=True):
        real = of(runs, OFF, AHEAD, "total_usd", [load])
        seen = of(runs, EXACT, AHEAD, "total_usd", [load])
        if foreseen == DECISIONS:
            seen = of(runs, OFF, AHEAD, "foreseen_usd", [load])
        found[load] = PERCENT * np.abs(seen - real) / real
    return found


def deviation_rows(runs: pl.DataFrame) -> list[Row]:
    """Return a row per load and kind of prediction: mean and largest deviation of the seeds."""
    return [
        {
            "foreseen_by": foreseen,
            "load": load,
            "seeds": len(off),
            **_spread("off_pct", mean(off)),
            "worst_pct": float(off.max()),
        }
        for foreseen in (PLAN, DECISIONS)
        for load, off in deviations(runs, foreseen).items()
    ]


def sensitivity(runs: pl.DataFrame, middle: float, zone: str) -> list[Row]:
    """Return a row per varied parameter and policy at the middle load: costs, and their increase in percent.

    The increase is relative to the policy `than` with usual parameters: the same policy, or looking ahead if the policy
    was not simulated with usual parameters.
    """
    usual = runs.filter(pl.col("study") == EXACT, pl.col("load") == middle, pl.col("zone") == zone)
    known = set(usual["arm"].to_list())
    rows: list[Row] = []
    for study in (WEIGHTS, PREEMPTING):
        own = runs.filter(pl.col("study") == study, pl.col("load") == middle)
        for (value, name), group in own.group_by("value", "arm", maintain_order=True):
            arm = str(name)
            than = arm if arm in known else AHEAD
            usual_usd = of(usual, EXACT, than, "total_usd")
            more = ratio(of(group, study, arm, "total_usd") - usual_usd, usual_usd).scaled(PERCENT)
            figures = {figure: float(of(group, study, arm, figure).mean()) for figure in FIGURES[:4]}
            said = {"study": study, "value": value, "arm": arm, "than": than}
            rows.append({**said, **figures, **_spread("more_than_usual_pct", more)})
    return rows


def _spread(name: str, found: Interval) -> Row:
    return {name: found.value, f"{name}_lo": found.low, f"{name}_hi": found.high}


LEAST_SAVING_PCT: Final = 30.0
PUBLISHED_SAVING: Final = "30 to 62 % lower, or better"
MOST_OFF_PCT: Final = 13.0
FORESEEN: Final = {
    PLAN: "that of the plan run with predicted times",
    DECISIONS: "what its decisions had foreseen",
}

METHODS: Final = ((EXACT, first_principle()), (PREEMPTING, tuple(preemptive())))
"""Simple policies by the study in which they are simulated: without preemption as in ANDREAS, and with it."""

MET, MISSED = "met", "missed"
WITHIN_REACH, OUT_OF_REACH = "not excluded", "out of reach"


def claims(runs: pl.DataFrame, at_loads: Sequence[float]) -> list[Row]:
    """Return a row per claim: `claim, bar, measured, low, high, verdict`, in percent; the mean decides the verdict.

    Claims about the simple policies without preemption, as in ANDREAS, come before those with preemption.
    """
    against = [row for study, arms in METHODS for row in _against_methods(runs, at_loads, study, arms)]
    return [*against, *_bound(runs, at_loads), *_net(runs, at_loads), *_deviation(runs), _chance(runs, at_loads)]


def _against_methods(runs: pl.DataFrame, at_loads: Sequence[float], study: str, arms: Sequence[str]) -> list[Row]:
    loads = ", ".join(f"{load:g}" for load in at_loads)
    ours = of(runs, EXACT, AHEAD, "total_usd", at_loads)
    rows: list[Row] = []
    for arm in arms:
        found = saving_pct(ours, of(runs, study, arm, "total_usd", at_loads))
        told = f"{AHEAD}: mean cost below {arm}, % (loads {loads})"
        rows.append(_claim(told, PUBLISHED_SAVING, found, met=found.value >= LEAST_SAVING_PCT))
    cells = {
        (load, arm): saving_pct(of(runs, EXACT, AHEAD, "total_usd", [load]), of(runs, study, arm, "total_usd", [load]))
        for load in at_loads
        for arm in arms
    }
    (load, arm), least = min(cells.items(), key=lambda cell: cell[1].value)
    told = f"{AHEAD}: least of these by load, % ({arm} at {load:g})"
    return [*rows, _claim(told, PUBLISHED_SAVING, least, met=least.value >= LEAST_SAVING_PCT)]


def _bound(runs: pl.DataFrame, at_loads: Sequence[float]) -> list[Row]:
    """Return by how much the lower bound is below the strongest simple policy: no schedule saves more."""
    rows: list[Row] = []
    for loads in (list(at_loads), *([load] for load in at_loads)):
        theirs = of(runs, PREEMPTING, STRONGEST, "total_usd", loads)
        found = saving_pct(of(runs, EXACT, BOUND, "total_usd", loads), theirs)
        told = f"any schedule: at most below {STRONGEST}, % (load {', '.join(f'{load:g}' for load in loads)})"
        rows.append(_claim(told, PUBLISHED_SAVING, found, met=found.value >= LEAST_SAVING_PCT))
        rows[-1]["verdict"] = WITHIN_REACH if rows[-1]["verdict"] == MET else OUT_OF_REACH
    return rows


def _net(runs: pl.DataFrame, at_loads: Sequence[float]) -> list[Row]:
    """Return a row for each policy with fixed requested GPUs: the saving after subtracting unavoidable tardiness."""
    rows: list[Row] = []
    for study, arm in ((study, arm) for study, arms in METHODS for arm in arms if as_asked(arm)):
        held = ((EXACT, AHEAD), (study, arm))
        figures = [(*each, name) for name in ("total_usd", "unavoidable_usd") for each in held]
        found = net_pct(*(of(runs, *each, at_loads) for each in figures))
        told = f"{AHEAD}: net of what cannot be avoided as asked, mean cost below {arm}, %"
        rows.append(_claim(told, PUBLISHED_SAVING, found, met=found.value >= LEAST_SAVING_PCT))
    return rows


def as_asked_note(runs: pl.DataFrame, at_loads: Sequence[float]) -> str:
    """Return a note on the tardiness that policies with fixed requested GPUs cannot avoid."""
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


def _chance(runs: pl.DataFrame, at_loads: Sequence[float]) -> Row:
    found = saving_pct(*(of(runs, EXACT, arm, "total_usd", at_loads) for arm in (AHEAD, GREEDY)))
    told = f"{AHEAD}: mean cost below the greedy's, %"
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
