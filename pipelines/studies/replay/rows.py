"""Metrics of replays as flat rows: JCT and delay, by gang size, compared between orders.

JCT is the job completion time, from submission to end.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final

import numpy as np

from pipelines.studies.intervals import Resamples
from pipelines.studies.replay.replay import FIFO, UNSIZED, Outcome
from pipelines.studies.replay.sizes import ORACLE, PREDICTED
from pipelines.studies.study import Row
from scheduler_core.types import BoolArray, FloatArray

ALL: Final = "all"
CLASSES: Final[dict[str, tuple[float, float]]] = {
    ALL: (0.0, math.inf),
    "1": (0.0, 1.0),
    "2-7": (1.0, 7.0),
    "8": (7.0, 8.0),
    ">8": (8.0, math.inf),
}
"""Classes of gangs by name: GPUs of the gang above the first number, and at most the second."""

PAIRED: Final[dict[str, tuple[str, str]]] = {
    "las": ("las", UNSIZED),
    "las_time": ("las_time", UNSIZED),
    "sjf": ("sjf", PREDICTED),
    "sjf_easy": ("sjf+easy", PREDICTED),
    "srtf": ("srtf", PREDICTED),
}
"""Orders, with their sources of sizes, from whose mean JCT every other order's difference is reported."""

SECONDS_PER_HOUR: Final = 3600.0
SHOWN: Final = ("reading", "gang_gpus", "capacity_gpus", "offered_load", "order", "sizes", "jobs")
HOURS: Final = ("jct_mean_s", "delay_mean_s", "delay_p99_s")
RATIOS: Final = ("fifo_jct_ratio", "gain_kept", "oracle_jct_ratio", "predicted_jct_ratio")

Run = list[Outcome]
"""The outcomes of one queue order and source of sizes, one per pool."""

Key = tuple[str, str]
"""A queue order and a source of sizes."""


def rows_of(outcomes: Sequence[Outcome], *, detail: bool = False, seed: int = 0) -> list[Row]:
    """Return one row per reading, queue order and source of sizes; with `detail` also per gang class.

    Columns:

    - `jct_mean_s`: time from submission to end, of all jobs that ended, completed or failed.
    - `delay_*`: JCT minus the recorded run time, which is time spent waiting, repeating lost work, and checkpointing.
    - `fifo_jct_ratio`: mean JCT under strict FIFO divided by this row's.
    - `gain_kept`: reduction of the mean JCT against FIFO, divided by the reduction by the same order with the oracle's
      sizes. Null if the oracle reduces nothing or the order uses no sizes. Under overload it is close to 1 for all
      sizes; the next two columns then tell more.
    - `oracle_jct_ratio`, `predicted_jct_ratio`: this row's mean JCT divided by that with the oracle's and with
      predicted sizes.
    - `less_*_s`: this row's mean JCT minus that of an order in `PAIRED`. Null if that order was not replayed.

    `_low` and `_high` are the ends of 95 % intervals of means and ratios, from `Resamples` with this seed. All rows of
    a reading use the same resampled weeks. The ends are null if there is no interval; quantiles have none.
    """
    rows: list[Row] = []
    for name in dict.fromkeys(outcome.reading.name for outcome in outcomes):
        own = [outcome for outcome in outcomes if outcome.reading.name == name]
        resamples = Resamples.of(np.concatenate([outcome.day for outcome in own]), seed=seed)
        runs: dict[Key, Run] = {}
        for outcome in own:
            runs.setdefault((outcome.order, outcome.sizes), []).append(outcome)
        for gang in CLASSES if detail else (ALL,):
            means = {key: _Means.of(run, gang, resamples) for key, run in runs.items()}
            rows += [{**_figures(gang, run), **_compared(key, gang, means, resamples)} for key, run in runs.items()]
    return rows


@dataclass(frozen=True, slots=True, kw_only=True)
class _Means:
    """Mean JCT, and mean JCT and delay in every resample (draws,); NaN without a job."""

    jct_s: float = math.nan
    drawn_jct_s: FloatArray = field(default_factory=lambda: np.array(math.nan))
    drawn_delay_s: FloatArray = field(default_factory=lambda: np.array(math.nan))

    @classmethod
    def of(cls, run: Run, gang: str, resamples: Resamples) -> "_Means":
        """Return the means of the jobs of a gang class that ended, over all pools."""
        day, gpus, run_s, jct_s = (
            np.concatenate([getattr(each, name) for each in run]) for name in ("day", "gpus", "run_s", "jct_s")
        )
        ended = ~np.isnan(jct_s) & _of_class(gpus, gang)
        columns = (np.ones(len(jct_s)), jct_s, jct_s - run_s)
        sums = np.array([resamples.by_day(day[ended], values[ended]) for values in columns])
        jobs, drawn_jct_s, drawn_delay_s = resamples.drawn(sums)
        with np.errstate(invalid="ignore"):
            return cls(jct_s=_mean(jct_s[ended]), drawn_jct_s=drawn_jct_s / jobs, drawn_delay_s=drawn_delay_s / jobs)


def _figures(gang: str, run: Run) -> Row:
    """Return the columns of a row that need no other run to compare with."""
    columns = ("gpus", "run_s", "jct_s", "stops")
    gpus, run_s, jct_s, stops = (np.concatenate([getattr(each, name) for each in run]) for name in columns)
    of_class = _of_class(gpus, gang)
    ended = of_class & ~np.isnan(jct_s)
    capacity = sum(outcome.pool.gpus for outcome in run)
    delay_s = jct_s[ended] - run_s[ended]
    return {
        "reading": run[0].reading.name,
        "capacity_basis": run[0].reading.basis,
        "capacity_gpus": capacity,
        "offered_load": sum(outcome.offered_gpus for outcome in run) / capacity,
        "order": run[0].order,
        "sizes": run[0].sizes,
        "gang_gpus": gang,
        "jobs": int(ended.sum()),
        "never_fits": int((of_class & np.isnan(jct_s)).sum()),
        "jct_mean_s": _mean(jct_s[ended]),
        "delay_mean_s": _mean(delay_s),
        "delay_p99_s": float(np.quantile(delay_s, 0.99)) if len(delay_s) else math.nan,
        "preemptions": int(stops[of_class].sum()),
    }


def _compared(key: Key, gang: str, known: dict[Key, _Means], resamples: Resamples) -> Row:
    """Return the columns of a row that compare mean JCT with FIFO, oracle and predicted sizes, and all intervals."""
    own, absent = known[key], _Means()
    fifo, oracle, predicted = (
        known.get(each, absent) for each in ((FIFO, UNSIZED), (key[0], ORACLE), (key[0], PREDICTED))
    )
    gain_s, drawn_gain_s = fifo.jct_s - oracle.jct_s, fifo.drawn_jct_s - oracle.drawn_jct_s
    drawn_gain_s = np.where(drawn_gain_s > 0.0, drawn_gain_s, np.nan)
    kept = (fifo.jct_s - own.jct_s) / gain_s if gang == ALL and gain_s > 0.0 else math.nan
    compared = {
        "fifo_jct_ratio": (fifo.jct_s / own.jct_s, fifo.drawn_jct_s / own.drawn_jct_s),
        "oracle_jct_ratio": (own.jct_s / oracle.jct_s, own.drawn_jct_s / oracle.drawn_jct_s),
        "predicted_jct_ratio": (own.jct_s / predicted.jct_s, own.drawn_jct_s / predicted.drawn_jct_s),
        "gain_kept": (kept, (fifo.drawn_jct_s - own.drawn_jct_s) / drawn_gain_s),
    }
    for name, other in PAIRED.items():
        theirs = known.get(other, absent)
        compared[f"less_{name}_s"] = (own.jct_s - theirs.jct_s, own.drawn_jct_s - theirs.drawn_jct_s)
    row = _ends("jct_mean_s", own.drawn_jct_s, resamples) | _ends("delay_mean_s", own.drawn_delay_s, resamples)
    for name, (value, drawn) in compared.items():
        finite = not math.isnan(value)
        row |= {name: value if finite else None} | _ends(name, drawn if finite else absent.drawn_jct_s, resamples)
    return row


def _ends(name: str, drawn: FloatArray, resamples: Resamples) -> Row:
    low, high = resamples.interval(drawn)
    return {f"{name}_low": low, f"{name}_high": high}


def _of_class(gpus: FloatArray, gang: str) -> BoolArray:
    above, up_to = CLASSES[gang]
    return np.asarray((gpus > above) & (gpus <= up_to), dtype=np.bool_)


def _mean(values: FloatArray | BoolArray) -> float:
    return float(values.mean()) if len(values) else math.nan


def screen(rows: Sequence[Row]) -> list[Row]:
    """Return the rows for the screen: times in hours, ratios, and differences from other orders that were replayed."""
    parts = ["gang_gpus"] if all(row["gang_gpus"] == ALL for row in rows) else []
    less = [name for name in (f"less_{other}_s" for other in PAIRED) if any(row[name] is not None for row in rows)]
    units = dict.fromkeys((*HOURS, *less), SECONDS_PER_HOUR) | dict.fromkeys(RATIOS, 1.0)
    return [
        {name: row[name] for name in SHOWN if name not in parts}
        | {key: value for name, unit in units.items() for key, value in _cells(row, name, unit).items()}
        | {"preemptions": row["preemptions"]}
        for row in rows
    ]


def _cells(row: Row, name: str, unit: float) -> Row:
    """Return a value in a unit and the ends of its interval, named as `study.rendered` expects them.

    >>> _cells({"x_s": 7200.0, "x_s_low": 3600.0, "x_s_high": 10800.0}, "x_s", 3600.0)
    {'x_h': 2.0, 'x_h_lo': 1.0, 'x_h_hi': 3.0}
    """
    shown = name if unit == 1.0 else f"{name.removesuffix('_s')}_h"
    ends = {shown: name, f"{shown}_lo": f"{name}_low", f"{shown}_hi": f"{name}_high"}
    values = {key: row[of] for key, of in ends.items() if of in row}
    return {key: value / unit if isinstance(value, float) else value for key, value in values.items()}
