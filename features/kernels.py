"""Compiled inner loops of features: statistics of the newest submissions, and the arithmetic of feature rows.

`features.columns.newest` names the statistics. Numba caches the compiled code next to this file, or in its user cache
if it may not write there; `NUMBA_CACHE_DIR` sets another folder.
"""

import math
from collections.abc import Callable
from typing import Any, Final

import numba
import numpy as np
import numpy.typing as npt

FloatArray = npt.NDArray[np.float64]
Float32Array = npt.NDArray[np.float32]
IntArray = npt.NDArray[np.int64]
Compiled = Callable[..., Any]  # numba has no types for compiled functions: see the annotations of each function

DEPTH: Final = 60
"""Maximum number of newest submissions that the statistics read."""
WIDTH: Final = 38
"""Number of statistics that are computed from one list of submissions."""

_US: Final = 1_000_000
_SLACK: Final = 1e-12  # a survival of 0.5 computed as a product of many factors is not exactly 0.5
_FEW: Final = 20
_GAPS_US: Final = (60 * _US, 300 * _US, 1800 * _US)
_SURVIVING: Final = (1 - 0.25 + _SLACK, 1 - 0.5 + _SLACK, 1 - 0.75 + _SLACK, 1 - 0.9 + _SLACK)
_SINCE: Final = (1, 2, 5, 20)


def _compiled(function: Compiled) -> Compiled:
    try:
        kernel: Compiled = numba.njit(cache=True)(function)
    except RuntimeError:  # no cache folder is writable: every process compiles again
        kernel = numba.njit(function)
    return kernel


@_compiled
def _survival(order: IntArray, ended: IntArray, run_s: FloatArray, counted: int, last: int, out: FloatArray) -> None:
    """Write the 25, 50, 75 and 90 % quantiles of a Kaplan-Meier curve of run times to `out` (4,).

    The curve is of the started jobs among the `last` newest submissions; `counted` is their number. `order` lists
    started jobs by run time so far, each as its index among the submissions (0 is the newest). A quantile that the
    curve does not reach is the longest run time.
    """
    out[:] = np.nan
    surviving, at_risk, reached = 1.0, counted, 0
    for place in order:
        if place >= last:
            continue
        if ended[place]:
            surviving *= (at_risk - 1) / at_risk
        at_risk -= 1
        while reached < 4 and surviving <= _SURVIVING[reached]:
            out[reached] = run_s[place]
            reached += 1
        for level in range(reached, 4):
            out[level] = run_s[place]


@_compiled
def _bursts(since_us: IntArray, run_s: FloatArray, ended: IntArray, by_run: IntArray, out: FloatArray) -> None:
    """Write to `out` the size, age, ended share and two run-time quantiles of the burst, for each of three gaps.

    A burst is the longest series of newest submissions in which each is less than the gap before the next, and the
    newest less than the gap before now. `since_us` (held,) are the microseconds since each submission, newest first.
    """
    quantiles = np.empty(4, np.float64)
    for i, gap_us in enumerate(_GAPS_US):
        size, before_us, on_curve, over = 0, 0, 0, 0
        while size < len(since_us) and since_us[size] - before_us < gap_us:
            before_us = since_us[size]
            if not np.isnan(run_s[size]):
                on_curve += 1
            over += ended[size]
            size += 1
        out[i] = size
        out[3 + i] = before_us / _US
        if size:
            out[6 + i] = over / size
        _survival(by_run, ended, run_s, on_curve, size, quantiles)
        out[9 + 2 * i] = quantiles[1]
        out[10 + 2 * i] = quantiles[3]


@_compiled
def newest_of_one(
    rows: IntArray,
    begin: int,
    stop: int,
    now_us: int,
    submit_us: IntArray,
    start_us: IntArray,
    end_us: IntArray,
    out: FloatArray,
) -> None:
    """Write to `out` (WIDTH,) the statistics of the newest submissions in `rows[begin:stop]`, as known at `now_us`.

    `submit_us`, `start_us` and `end_us` are indexed by row; events that have not happened have the time `NEVER`.

    References
    ----------
    Kaplan and Meier, Nonparametric estimation from incomplete observations, JASA 1958.
    """
    held = min(stop - begin, DEPTH)
    since_us = np.empty(DEPTH, np.int64)
    run_s = np.empty(DEPTH, np.float64)
    ranks = np.empty(DEPTH, np.int64)
    order = np.empty(DEPTH, np.int64)
    ended = np.zeros(DEPTH, np.int64)
    started, started_few, ended_few, newest_ended = 0, 0, 0, -1
    for place in range(held):
        row = rows[stop - 1 - place]
        since_us[place] = now_us - submit_us[row]
        run_s[place] = np.nan
        if start_us[row] >= now_us:
            continue
        run_us = min(end_us[row], now_us) - start_us[row]
        run_s[place] = run_us / _US
        if end_us[row] < now_us:
            ended[place] = 1
            if newest_ended < 0:
                newest_ended = place
        if place < _FEW:
            started_few += 1
            ended_few += ended[place]
        # Sort by run time so far; of equal run times, ended jobs first, then newer before older submissions.
        rank = run_us * 2 + (1 - ended[place])
        put = started
        while put > 0 and ranks[put - 1] > rank:
            ranks[put], order[put] = ranks[put - 1], order[put - 1]
            put -= 1
        ranks[put], order[put] = rank, place
        started += 1
    by_run = order[:started]

    out[:] = np.nan
    for place in range(min(held, 5)):
        out[place] = run_s[place]
    for place in range(min(held, 3)):
        out[5 + place] = ended[place]
    for i, back in enumerate(_SINCE):
        if back <= held:
            out[8 + i] = since_us[back - 1] / _US
    _survival(by_run, ended, run_s, started_few, _FEW, out[12:16])
    _survival(by_run, ended, run_s, started, DEPTH, out[16:20])
    if held:
        out[20] = ended_few / min(held, _FEW)
    if newest_ended >= 0:
        out[21] = run_s[newest_ended]
        out[22] = newest_ended
    _bursts(since_us[:held], run_s, ended, by_run, out[23:])


@_compiled
def newest_of_many(
    rows: IntArray,
    begin: IntArray,
    stop: IntArray,
    now_us: IntArray,
    submit_us: IntArray,
    start_us: IntArray,
    end_us: IntArray,
) -> FloatArray:
    """Return the statistics (n, WIDTH) of the n spans `rows[begin[i]:stop[i]]`, each as known at `now_us[i]`."""
    out = np.empty((len(begin), WIDTH), np.float64)
    for i in range(len(begin)):
        newest_of_one(rows, begin[i], stop[i], now_us[i], submit_us, start_us, end_us, out[i])
    return out


@_compiled
def newest_at_places(
    rows: IntArray,
    stop: int,
    now_us: int,
    submit_us: IntArray,
    start_us: IntArray,
    end_us: IntArray,
    stats: IntArray,
    places: IntArray,
    row: FloatArray,
) -> None:
    """Write statistic `stats[i]` of the newest submissions in `rows[:stop]` to column `places[i]` of feature `row`."""
    out = np.empty(WIDTH, np.float64)
    newest_of_one(rows, 0, stop, now_us, submit_us, start_us, end_us, out)
    for i in range(len(stats)):
        row[places[i]] = out[stats[i]]


@_compiled
def own_numbers(numbers: FloatArray, rules: IntArray, matrix: FloatArray) -> None:
    """Compute features from the jobs' own `numbers` (n, c), and write them to `matrix` (n, k).

    Each rule of `rules` (r, 4) is (column of `matrix`, above, times, over). The last three are columns of `numbers`, or
    -1 if absent. The feature is above * times / over, NaN where `over` is not positive.
    """
    for i in range(len(numbers)):
        for rule in range(len(rules)):
            column, above, times, over = rules[rule]
            value = numbers[i, above]
            if times >= 0:
                value *= numbers[i, times]
            if over >= 0:
                value = value / numbers[i, over] if numbers[i, over] > 0 else np.nan
            matrix[i, column] = value


@_compiled
def relative_rows(
    matrix: FloatArray, reference: FloatArray, seconds: IntArray, logs: IntArray, out: Float32Array
) -> None:
    """Write a feature matrix (n, k) to `out` as float32, with run-time features relative to the job's reference.

    `matrix` is overwritten. Its columns `seconds` are converted to logs (at least 1 s); its columns `logs` are logs
    already. From both, the log of the p50 reference is subtracted: the first column of `reference` (n, 2).
    """
    for i in range(len(matrix)):
        for column in seconds:
            value = matrix[i, column]
            matrix[i, column] = (0.0 if value < 1 else math.log(value)) - reference[i, 0]
        for column in logs:
            matrix[i, column] -= reference[i, 0]
        for column in range(matrix.shape[1]):
            out[i, column] = matrix[i, column]
