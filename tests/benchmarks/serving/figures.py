"""A benchmark's row: two things measured in turn on one machine, the median of their ratios, its spread, and its bar.

Nothing is started or timed here. Called by every part of the serving benchmarks.
"""

import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from statistics import median
from typing import Literal, TypeVar

from pipelines.render import render

Row = dict[str, object]
Measure = TypeVar("Measure")


@dataclass(frozen=True, slots=True, kw_only=True)
class Bar:
    """What a figure has to reach."""

    side: Literal["at least", "at most", "under"]
    value: float

    def met(self, figure: float) -> bool:
        match self.side:
            case "at least":
                return figure >= self.value
            case "at most":
                return figure <= self.value
            case "under":
                return figure < self.value

    def __str__(self) -> str:
        return f"{self.side} {self.value:g}"


def alternately(measures: Mapping[str, Callable[[], Measure]], rounds: int) -> dict[str, list[Measure]]:
    """Measure each once a round, in turn, so that what the machine does besides falls on all alike."""
    found: dict[str, list[Measure]] = {name: [] for name in measures}
    for _ in range(rounds):
        for name, measure in measures.items():
            found[name].append(measure())
    return found


def ratio_row(
    part: str,
    what: str,
    against: str,
    measured: Sequence[float],
    base: Sequence[float],
    *,
    unit: str,
    bar: Bar | None = None,
) -> Row:
    """Return a row on the median of the rounds' ratios; `spread` is the lowest and the highest of them."""
    ratios = [one / other for one, other in zip(measured, base, strict=True)]
    return _row(part, what, against, median(measured), median(base), unit, ratios, bar)


def amount_row(part: str, what: str, measured: Sequence[float], *, unit: str, bar: Bar | None = None) -> Row:
    """Return a row on an amount that is compared with nothing but its bar."""
    return _row(part, what, None, median(measured), None, unit, list(measured), bar)


def tell(rows: Sequence[Row], form: str) -> None:
    """Print rows on stdout without what they were measured against, and on stderr which bars were missed."""
    told = [{name: value for name, value in row.items() if name not in ("against", "base", "ratio")} for row in rows]
    render(told, form, stream=sys.stdout)
    tell_missed(rows)


def tell_missed(rows: Sequence[Row]) -> None:
    """Print on stderr which bars were missed."""
    missed = [str(row["what"]) for row in rows if row["met"] is False]
    print(f"missed: {'; '.join(missed)}" if missed else "every bar is met", file=sys.stderr)


def _row(
    part: str,
    what: str,
    against: str | None,
    measured: float,
    base: float | None,
    unit: str,
    judged: Sequence[float],
    bar: Bar | None,
) -> Row:
    figure = median(judged)
    return {
        "part": part,
        "what": what,
        "measured": measured,
        "unit": unit,
        "against": against,
        "base": base,
        "ratio": None if base is None else figure,
        "spread": f"{min(judged):.4g} .. {max(judged):.4g}",
        "bar": None if bar is None else str(bar),
        "met": None if bar is None else bar.met(figure),
    }
