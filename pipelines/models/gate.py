"""The promotion gate: decides from a model's evaluation whether it may become champion, and gives reasons.

Pure functions; no registry is read or written here. Called by `pipelines.models.tracking` and the demo.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final, Literal

import polars as pl

from pipelines.models.comparison import MODEL

__all__ = ["FITTED_BASELINES"]

FITTED_BASELINES: Final = frozenset({"random_forest", "random_forest_relative"})
"""Baselines that are fitted. The gate ignores them: a model must only beat the history baselines."""

TIME_LATER: Final = "time"
LEAST_ROWS: Final = 50
"""Minimum number of held-out rows for a model to pass."""

COVERAGE_TOLERANCE: Final = 0.05
"""How far the coverage of a usage quantile may lie below its level; coverage above the level always passes."""

Row = Mapping[str, object]


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """The decision of the gate and its reasons, one sentence each."""

    passed: bool
    reasons: tuple[str, ...]

    @property
    def text(self) -> str:
        """Return the reasons as one line."""
        return "; ".join(self.reasons)


def judge(kind: Literal["runtime", "usage"], evaluation: pl.DataFrame) -> Verdict:
    """Judge a model by its evaluation on time-later rows.

    Parameters
    ----------
    kind
        `runtime`: the lead (loss of the best history baseline minus loss of the model) and its whole 95 % interval
        must be above zero. `usage`: the coverage of each target's quantile must be at least its level minus
        `COVERAGE_TOLERANCE`.
    evaluation
        One row per model and baseline (`runtime`: `model, split, n, pinball, lead, lead_lo`) or per target
        (`usage`: `model, target, split, n, level, coverage`). Rows of other splits are ignored.
    """
    missing = sorted(COLUMNS[kind] - set(evaluation.columns))
    if missing:
        return _refused(f"the evaluation lacks {', '.join(missing)}")
    rows = evaluation.filter(pl.col("split") == TIME_LATER).to_dicts()
    if not rows:
        return _refused(f"no rows of the split {TIME_LATER}: a model is judged on jobs later than its training jobs")
    return _judge_runtime(rows) if kind == "runtime" else _judge_usage(rows)


COLUMNS: Final = {
    "runtime": frozenset({"model", "split", "n", "pinball", "lead", "lead_lo"}),
    "usage": frozenset({"model", "target", "split", "n", "level", "coverage"}),
}


def _judge_runtime(rows: Sequence[Row]) -> Verdict:
    own = [row for row in rows if row["model"] == MODEL]
    if len(own) != 1:
        return _refused(f"{len(own)} rows of {MODEL}, expected one")
    n = _count(own[0])
    if n < LEAST_ROWS:
        return _refused(f"{n} held-out rows, expected at least {LEAST_ROWS}")
    remembered = [row for row in rows if row["model"] not in {MODEL, *FITTED_BASELINES}]
    baselines = [row for row in remembered if math.isfinite(_figure(row, "pinball"))]
    if not baselines:
        return _refused("no history baseline on the held-out rows, expected at least one")
    best = min(baselines, key=lambda row: (_figure(row, "pinball"), str(row["model"])))
    ours, theirs = _figure(own[0], "pinball"), _figure(best, "pinball")
    lead, lowest = _figure(best, "lead"), _figure(best, "lead_lo")
    found = f"pinball {ours:.4f} against {theirs:.4f} of {best['model']} on {n} later rows, lead {lead:+.4f}"
    if lead > 0.0 and lowest > 0.0:
        return Verdict(passed=True, reasons=(f"{found}, at least {lowest:+.4f}",))
    if lead > 0.0:
        return _refused(f"{found}, but its interval begins at {lowest:+.4f}: expected above zero")
    return _refused(f"{found}: expected above zero")


def _judge_usage(rows: Sequence[Row]) -> Verdict:
    own = sorted((row for row in rows if row["model"] == MODEL), key=lambda row: str(row["target"]))
    if not own:
        return _refused(f"no rows of {MODEL}, expected one per target")
    good, bad = [], []
    for row in own:
        n, level, coverage = _count(row), _figure(row, "level"), _figure(row, "coverage")
        found = f"{row['target']} covered {coverage:.3f} of {n} later rows"
        if n < LEAST_ROWS:
            bad.append(f"{row['target']} has {n} later rows, expected at least {LEAST_ROWS}")
        elif coverage >= level - COVERAGE_TOLERANCE:
            good.append(found)
        else:
            bad.append(f"{found}, expected {level:.2f} within {COVERAGE_TOLERANCE:.2f}")
    return _refused(*bad) if bad else Verdict(passed=True, reasons=tuple(good))


def _figure(row: Row, name: str) -> float:
    value = row[name]
    return float(value) if isinstance(value, int | float) else math.nan


def _count(row: Row) -> int:
    value = row["n"]
    return value if isinstance(value, int) else 0


def _refused(*reasons: str) -> Verdict:
    return Verdict(passed=False, reasons=reasons)
