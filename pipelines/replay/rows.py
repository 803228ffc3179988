"""What replays come to, as flat rows: JCT, delay and slowdown, by VC and by size of gang, against FIFO and the oracle.

Nothing is simulated here. Called by `taut experiment replay`; the charts are drawn from the same rows.
"""

import math
from collections.abc import Sequence
from typing import Final

import numpy as np

from pipelines.replay.orders import FIFO
from pipelines.replay.replay import Outcome
from pipelines.replay.sizes import ORACLE
from scheduler_core.types import BoolArray, FloatArray

Row = dict[str, object]

ALL: Final = "all"
CLASSES: Final[dict[str, tuple[float, float]]] = {
    "1": (0.0, 1.0),
    "2-7": (1.0, 7.0),
    "8": (7.0, 8.0),
    ">8": (8.0, math.inf),
}
"""Gangs by their GPUs, above the first number and up to the second."""

SLOWDOWN_FLOOR_S: Final = 10.0
"""Shorter runs count as this long in the bounded slowdown.

References: Feitelson, Rudolph: Metrics and Benchmarking for Parallel Job Scheduling, 1998.
"""

DELAYED_S: Final = 60.0


def rows_of(outcomes: Sequence[Outcome], *, detail: bool = False) -> list[Row]:
    """Return one row per run of a reading, over all its pools; with `detail` also per VC and per class of gang.

    Columns: `jct` is submission to end of every job that ended, completed or failed; `delay` is JCT less the recorded
    run time (waiting, lost and checkpoint time); `slowdown` is max(JCT / max(run, 10 s), 1). `fifo_jct_ratio` is the
    mean JCT of strict FIFO over this one's; `gain_kept` is the share of what the same order gains over FIFO with the
    oracle's sizes, null where the oracle gains nothing or the order looks at no sizes. Where FIFO piles up, nearly all
    of a huge gain is kept by any order: `oracle_jct_ratio`, this mean JCT over that with the oracle's sizes, says what
    better sizes would still bring.
    """
    rows: list[Row] = []
    for group in _runs(outcomes):
        rows.extend(_rows_of_run(group, outcomes, detail=detail))
    return rows


def _runs(outcomes: Sequence[Outcome]) -> list[list[Outcome]]:
    """Put the pools of one run together, in the order of the runs."""
    groups: dict[tuple[str, str, str], list[Outcome]] = {}
    for outcome in outcomes:
        groups.setdefault((outcome.reading.name, outcome.order, outcome.sizes), []).append(outcome)
    return list(groups.values())


def _rows_of_run(run: list[Outcome], outcomes: Sequence[Outcome], *, detail: bool) -> list[Row]:
    slices: list[tuple[str, list[Outcome]]] = [(ALL, run)]
    if detail and len(run) > 1:
        slices += [(str(outcome.pool.vc), [outcome]) for outcome in run]
    same = [outcome for outcome in outcomes if outcome.reading.name == run[0].reading.name]
    fifo = [outcome for outcome in same if outcome.order == FIFO]
    oracle = [outcome for outcome in same if (outcome.order, outcome.sizes) == (run[0].order, ORACLE)]
    return [
        _row(vc, gang, own, fifo=_of_pools(fifo, own), oracle=_of_pools(oracle, own))
        for vc, own in slices
        for gang in (ALL, *(CLASSES if detail else ()))
    ]


def _of_pools(outcomes: list[Outcome], run: list[Outcome]) -> list[Outcome]:
    vcs = {outcome.pool.vc for outcome in run}
    return [outcome for outcome in outcomes if outcome.pool.vc in vcs]


def _row(vc: str, gang: str, run: list[Outcome], *, fifo: list[Outcome], oracle: list[Outcome]) -> Row:
    gpus, run_s, jct_s = (_stacked(run, name) for name in ("gpus", "run_s", "jct_s"))
    asked = _of_class(gpus, gang)
    ended = asked & ~np.isnan(jct_s)
    capacity = sum(outcome.pool.gpus for outcome in run)
    delay_s = jct_s[ended] - run_s[ended]
    slowdown = np.maximum(jct_s[ended] / np.maximum(run_s[ended], SLOWDOWN_FLOOR_S), 1.0)
    mean_s, fifo_s, oracle_s = (_mean_jct(each, gang) for each in (run, fifo, oracle))
    gain_s = fifo_s - oracle_s
    return {
        "reading": run[0].reading.name,
        "capacity_basis": run[0].reading.basis,
        "vc": vc,
        "capacity_gpus": capacity,
        "offered_load": sum(outcome.offered_gpus for outcome in run) / capacity,
        "order": run[0].order,
        "sizes": run[0].sizes,
        "gang_gpus": gang,
        "jobs": int(ended.sum()),
        "never_fits": int((asked & np.isnan(jct_s)).sum()),
        "jct_mean_s": mean_s,
        "jct_p50_s": _quantile(jct_s[ended], 0.5),
        "jct_p99_s": _quantile(jct_s[ended], 0.99),
        "delay_mean_s": _mean(delay_s),
        "delay_p99_s": _quantile(delay_s, 0.99),
        "delayed_share": _mean(delay_s > DELAYED_S),
        "slowdown_mean": _mean(slowdown),
        "slowdown_p99": _quantile(slowdown, 0.99),
        "slowdown_max": _quantile(slowdown, 1.0),
        "preemptions": int(sum(outcome.stops[_of_class(outcome.gpus, gang)].sum() for outcome in run)),
        "fifo_jct_ratio": fifo_s / mean_s,
        "oracle_jct_ratio": mean_s / oracle_s if oracle else None,
        "gain_kept": (fifo_s - mean_s) / gain_s if gang == ALL and gain_s > 0.0 else None,
    }


def _of_class(gpus: FloatArray, gang: str) -> BoolArray:
    above, up_to = CLASSES.get(gang, (0.0, math.inf))
    return np.asarray((gpus > above) & (gpus <= up_to), dtype=np.bool_)


def _stacked(run: list[Outcome], column: str) -> FloatArray:
    return np.concatenate([getattr(outcome, column) for outcome in run])


def _mean_jct(run: list[Outcome], gang: str) -> float:
    if not run:
        return math.nan
    jct_s = _stacked(run, "jct_s")
    return _mean(jct_s[_of_class(_stacked(run, "gpus"), gang) & ~np.isnan(jct_s)])


def _mean(values: FloatArray | BoolArray) -> float:
    return float(values.mean()) if len(values) else math.nan


def _quantile(values: FloatArray, level: float) -> float:
    return float(np.quantile(values, level)) if len(values) else math.nan
