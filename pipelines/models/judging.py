"""The gate: compare models with simple answers on resampled days, give a verdict, and choose which answer serves."""

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, Literal

import numpy as np
import numpy.typing as npt
import polars as pl

from modelserve.bundle.card import FITTED, SIMPLE, VerdictWord
from pipelines.models import metrics
from pipelines.models.metrics import FloatArray, Forecast

__all__ = ["COMBINED"]

IntArray = npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True, kw_only=True)
class Interval:
    """A statistic of all rows, with its 95 % bootstrap interval."""

    value: float
    lo: float
    hi: float


def day_blocks(submit_ts: pl.Series) -> IntArray:
    """Return the UTC calendar day of each submission (n,), as a number 0 to k - 1 over the k distinct days."""
    days = submit_ts.dt.epoch("d").to_numpy()
    return np.unique(days, return_inverse=True)[1].astype(np.int64)


DRAWS: Final = 1000
"""Number of bootstrap resamples of days behind an interval."""


def day_draws(days: int, *, seed: int, draws: int = DRAWS) -> FloatArray:
    """Return how often each day is drawn in each bootstrap resample (draws, days); each row sums to `days`."""
    rng = np.random.default_rng(seed)
    return rng.multinomial(days, np.full(days, 1.0 / days), size=draws).astype(np.float64)


def day_sums(blocks: IntArray, rows: FloatArray) -> FloatArray:
    """Return the sum of the values `rows` (n,) within each day (days,)."""
    return np.bincount(blocks, weights=rows).astype(np.float64)


def mean_interval(blocks: IntArray, rows: FloatArray, draws: FloatArray) -> Interval:
    """Return the mean of the values `rows` (n,) with its interval; for a paired comparison pass differences."""
    return ratio_interval(blocks, rows, np.ones_like(rows), draws)


def ratio_interval(blocks: IntArray, top: FloatArray, bottom: FloatArray, draws: FloatArray) -> Interval:
    """Return Σtop / Σbottom with its interval; each resample takes both sums over the same days.

    A single day cannot be resampled: its interval is infinite.
    """
    tops, bottoms = day_sums(blocks, top), day_sums(blocks, bottom)
    total = float(bottoms.sum())
    value = float(tops.sum()) / total if total > 0 else float("nan")
    if len(tops) < 2:
        return Interval(value=value, lo=float("-inf"), hi=float("inf"))
    below = draws @ bottoms
    drawn = (draws @ tops)[below > 0] / below[below > 0]
    lo, hi = np.percentile(drawn, [2.5, 97.5])
    return Interval(value=value, lo=float(lo), hi=float(hi))


MODEL: Final = "xgboost"
"""Name of a usage model's rows in an evaluation."""
COMBINED: Final = "combined"
"""Name of a run-time model's row in an evaluation: the combination of its members. All other rows are compared with it:
its members one by one, the simple answers, and the history baselines."""

EVALUATION_SCHEMA: Final[dict[str, type[pl.DataType]]] = {
    **dict.fromkeys(("model", "trace", "task_type", "split"), pl.String),
    **dict.fromkeys(("n", "days"), pl.Int64),
    **dict.fromkeys(("mae_h", "wmape", "pinball", "pinball_lo", "pinball_hi", "pinball_p50"), pl.Float64),
    **dict.fromkeys(("coverage_p90", "within_2x", "lead", "lead_lo", "lead_hi"), pl.Float64),
    **dict.fromkeys(("excess", "excess_lo", "excess_hi"), pl.Float64),
}
"""Columns of an evaluation, one row per answer: the combination, each of its members, and each history baseline.

`lead` is an answer's pinball loss minus the combination's, null for the combination. `excess` is an answer's pinball
loss minus that of the best answer that is not trained: the gate reads it. `days` is the number of days on which the
rows were submitted, which are resampled. `_lo` and `_hi` are the ends of 95 % intervals.
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Judged:
    """The judged rows: submission times and run times in the same order, and the number `n` of distinct jobs.

    A job judged in several folds has several rows, but counts once in `n`.
    """

    trace: str
    task_type: str
    split: str
    submit_ts: pl.Series
    run_s: FloatArray
    n: int


def compare(judged: Judged, forecasts: Mapping[str, Forecast], *, seed: int, draws: int = DRAWS) -> pl.DataFrame:
    """Score every forecast, with its differences from the combination and the best simple one, on the same days.

    The table has one row per forecast in the order given; columns `EVALUATION_SCHEMA`.
    """
    blocks = day_blocks(judged.submit_ts)
    drawn = day_draws(int(blocks.max()) + 1, seed=seed, draws=draws)
    log_y = metrics.log_run(judged.run_s)
    losses = {name: metrics.primary_rows(log_y, forecast) for name, forecast in forecasts.items()}
    simple = [name for name in forecasts if name not in (COMBINED, *FITTED)]
    best = min(simple, key=lambda name: (float(np.mean(losses[name])), name), default=None)
    rows: list[dict[str, object]] = []
    for name, forecast in forecasts.items():
        interval = mean_interval(blocks, losses[name], drawn)
        row: dict[str, object] = {
            "model": name,
            "trace": judged.trace,
            "task_type": judged.task_type,
            "split": judged.split,
            "n": judged.n,
            "days": drawn.shape[1],
            **metrics.score(judged.run_s, forecast),
            "pinball_lo": interval.lo,
            "pinball_hi": interval.hi,
        }
        if best is not None:
            excess = mean_interval(blocks, losses[name] - losses[best], drawn)
            row |= {"excess": excess.value, "excess_lo": excess.lo, "excess_hi": excess.hi}
        if name != COMBINED:
            lead = mean_interval(blocks, losses[name] - losses[COMBINED], drawn)
            row |= {"lead": lead.value, "lead_lo": lead.lo, "lead_hi": lead.hi}
        rows.append(row)
    return pl.DataFrame(rows, schema=EVALUATION_SCHEMA)


TIME_LATER: Final = "time"
LEAST_ROWS: Final = 50
LEAST_DAYS: Final = 5
"""Minimum numbers of later rows, and of days on which they were submitted, to be sure of a difference. Two answers that
do equally well agree in sign on all of 5 days by chance once in 16 times."""

TOLERANCE: Final = 0.05
"""Largest excess of a `level` model's loss over that of the best simple answer, as a share of the latter."""

COVERAGE_TOLERANCE: Final = 0.05
"""How far the coverage of a usage quantile may lie below its level; coverage above the level always passes."""

Row = Mapping[str, object]


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """The decision of the gate and its reasons, one sentence each.

    `word` on a run-time model: `better` (its loss on later rows is surely below that of the best simple answer),
    `level` (neither surely below nor above, and at most `TOLERANCE` above), `worse` (surely above), `too few` (the rows
    cannot tell); `failed` without a finite loss. On a usage model: `passed` or `failed`. `answer` is what a run-time
    model serves: `combined`, `history`, or the only member to serve.
    """

    word: VerdictWord
    reasons: tuple[str, ...]
    answer: str = COMBINED

    @property
    def proven(self) -> bool:
        """Whether later rows support the version, so that it may replace any champion."""
        return self.word in PROVEN

    @property
    def text(self) -> str:
        """Return the reasons as one line."""
        return "; ".join(self.reasons)


PROVEN: Final = ("better", "level", "passed")


def judge(kind: Literal["runtime", "usage"], evaluation: pl.DataFrame) -> Verdict:
    """Judge a model by its evaluation on time-later rows.

    A run-time model is compared with the best simple answer, by pinball loss: it must not be surely worse. Of a usage
    model, the coverage of each target's quantile must be at least its level minus `COVERAGE_TOLERANCE`.
    """
    rows = evaluation.filter(pl.col("split") == TIME_LATER).to_dicts()
    if not rows and kind == "usage":
        return _refused(f"no rows of the split {TIME_LATER}: a model is judged on jobs later than its training jobs")
    return _judge_runtime(rows) if kind == "runtime" else _judge_usage(rows)


def _judge_runtime(rows: Sequence[Row]) -> Verdict:
    by_name = {str(row["model"]): row for row in rows if math.isfinite(_figure(row, "pinball"))}
    simple = {name: row for name, row in by_name.items() if name not in (COMBINED, *FITTED)}
    if not rows:
        return Verdict(word="too few", reasons=("no later job to judge on: history answers",), answer="history")
    if COMBINED not in by_name or not set(SIMPLE) & set(simple):
        return _refused(f"no finite loss of {COMBINED} or of a simple answer, expected both")
    n, days = _count(by_name[COMBINED], "n"), _count(by_name[COMBINED], "days")
    enough = n >= LEAST_ROWS and days >= LEAST_DAYS
    alone = [name for name in FITTED & set(by_name) if enough and _figure(by_name[name], "lead_hi") < 0.0]
    name = _least(alone, by_name) if alone else COMBINED
    own, best = by_name[name], _least(simple, by_name)
    gap, lo, hi = (_figure(own, f"excess{end}") for end in ("", "_lo", "_hi"))
    near = gap <= TOLERANCE * _figure(by_name[best], "pinball")
    word: VerdictWord = "too few"
    if enough and (hi < 0.0 or lo > 0.0 or near):
        word = "better" if hi < 0.0 else "worse" if lo > 0.0 else "level"
    keeps = word in PROVEN or (word == "too few" and gap <= 0.0)
    answer = name if keeps else _least(set(SIMPLE) & set(simple), by_name)
    said = "too few later rows to tell" if word == "too few" else word
    found = f"{said}: {name} {_figure(own, 'pinball'):.4f} against {_figure(by_name[best], 'pinball'):.4f} of {best}"
    found += f" on {n} later rows of {days} days, {gap:+.4f}" + (f" [{lo:+.4f}, {hi:+.4f}]" if enough else "")
    return Verdict(word=word, reasons=(found, f"{answer} answers"), answer=answer)


def _least(names: Iterable[str], by_name: Mapping[str, Row]) -> str:
    """Return the name with the lowest loss; among equal losses, the first by name."""
    return min(names, key=lambda name: (_figure(by_name[name], "pinball"), name))


def _judge_usage(rows: Sequence[Row]) -> Verdict:
    own = sorted((row for row in rows if row["model"] == MODEL), key=lambda row: str(row["target"]))
    if not own:
        return _refused(f"no rows of {MODEL}, expected one per target")
    good, bad = [], []
    for row in own:
        n, level, coverage = _count(row, "n"), _figure(row, "level"), _figure(row, "coverage")
        found = f"{row['target']} covered {coverage:.3f} of {n} later rows"
        if n < LEAST_ROWS:
            bad.append(f"{row['target']} has {n} later rows, expected at least {LEAST_ROWS}")
        elif coverage >= level - COVERAGE_TOLERANCE:
            good.append(found)
        else:
            bad.append(f"{found}, expected {level:.2f} within {COVERAGE_TOLERANCE:.2f}")
    return _refused(*bad) if bad else Verdict(word="passed", reasons=tuple(good))


def _figure(row: Row, name: str) -> float:
    value = row[name]
    return float(value) if isinstance(value, int | float) else math.nan


def _count(row: Row, name: str) -> int:
    value = row[name]
    return value if isinstance(value, int) else 0


def _refused(*reasons: str) -> Verdict:
    return Verdict(word="failed", reasons=reasons)
