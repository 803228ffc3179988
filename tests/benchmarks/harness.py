"""One harness for all benchmarks: alternating rounds, medians and ratios with their spread, bars, and one table.

A benchmark is named parts, each a function that returns rows; `measure` runs them and prints.
"""

import argparse
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from statistics import median
from typing import Final, Literal, TypeVar

import psutil

from pipelines.render import render

Row = dict[str, object]
Part = Callable[[], Iterable[Row]]
Measure = TypeVar("Measure")

QUIET: Final = 0.05
"""Share of the machine that others may take in a run whose figures count."""
MOST_ALIKE: Final = 0.98
"""Correlation of neighbouring samples beyond which no number of them says anything."""
UNSEEN_S: Final[list[float]] = []
"""CPU seconds of ended processes that the system does not count as this process's children."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Bar:
    """What a figure has to reach."""

    side: Literal["at least", "at most", "under"]
    value: float

    def met(self, figure: float) -> bool:
        reached = {"at least": figure >= self.value, "at most": figure <= self.value, "under": figure < self.value}
        return reached[self.side]

    def __str__(self) -> str:
        return f"{self.side} {self.value:g}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Taken:
    """What a child process took: wall and CPU seconds, peak resident memory, and its standard output."""

    seconds: float
    cpu_s: float
    peak_mib: float
    output: str


def alternately(measures: Mapping[str, Callable[[], Measure]], rounds: int) -> dict[str, list[Measure]]:
    """Measure each once a round, in turn, so that other load on the machine falls on all alike."""
    results: dict[str, list[Measure]] = {name: [] for name in measures}
    for _ in range(rounds):
        for name, measured in measures.items():
            results[name].append(measured())
    return results


def ratio_row(
    what: str, against: str, measured: Sequence[float], base: Sequence[float], *, unit: str, bar: Bar | None = None
) -> Row:
    """Return a row on the median of the rounds' ratios; `spread` is the lowest and the highest of them."""
    ratios = [one / other for one, other in zip(measured, base, strict=True)]
    medians = {"against": against, "base": median(base), "ratio": median(ratios)}
    return {"what": what, "measured": median(measured), "unit": unit, **medians, **_judged(ratios, bar)}


def amount_row(what: str, measured: Sequence[float], *, unit: str, bar: Bar | None = None) -> Row:
    """Return a row on the median of an amount that is compared only with its bar."""
    return {"what": what, "measured": median(measured), "unit": unit, **_judged(measured, bar)}


def slope_of(at: Sequence[float], values: Sequence[float]) -> tuple[float, float, float]:
    """Fit a line; return its slope and the ends of a 95 % interval that knows samples resemble their neighbours.

    With a correlation r of neighbouring residuals, the variance is (1 + r) / (1 - r) times that of independent samples.
    """
    import numpy as np
    from scipy.stats import linregress

    line = linregress(at, values)
    rest = np.asarray(values) - line.intercept - line.slope * np.asarray(at)
    squares = float(rest @ rest)
    alike = float(np.clip(rest[1:] @ rest[:-1] / squares, 0.0, MOST_ALIKE)) if squares else 0.0
    half = 1.96 * float(line.stderr) * float(np.sqrt((1.0 + alike) / (1.0 - alike)))
    return float(line.slope), float(line.slope) - half, float(line.slope) + half


def cpu_seconds(run: Callable[[], object]) -> float:
    """Return the CPU seconds of this process that a call takes: other processes do not count."""
    begin = time.process_time()
    run()
    return time.process_time() - begin


def child(command: Sequence[object]) -> Taken:
    """Run a command to its end; its peak memory is at least that of this process when it started.

    Raises
    ------
    RuntimeError
        If it fails.
    """
    start = time.perf_counter()
    with subprocess.Popen([*map(str, command)], stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        output = process.stdout.read()
        _, state, used = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(state)
    seconds = time.perf_counter() - start
    if process.returncode:
        raise RuntimeError(f"{' '.join(map(str, command))} ended with {process.returncode}: {output[-500:]}")
    cpu_s = used.ru_utime + used.ru_stime
    return Taken(seconds=seconds, cpu_s=cpu_s, peak_mib=used.ru_maxrss / 1024, output=output)


class Others:
    """What the machine does besides this benchmark, from when it is made."""

    def __init__(self) -> None:
        self._start = self._now()

    def share(self) -> float:
        """Return the share of the machine that other processes have taken since; up to `QUIET` is a quiet machine."""
        taken, busy, own = (now - then for now, then in zip(self._now(), self._start, strict=True))
        return max(busy - own, 0.0) / taken / (os.cpu_count() or 1)

    def _now(self) -> tuple[float, float, float]:
        cpu = psutil.cpu_times()
        busy_s = cpu.user + cpu.nice + cpu.system + cpu.irq + cpu.softirq + cpu.steal
        return time.monotonic(), busy_s, sum(os.times()[:4]) + sum(UNSEEN_S)


def parser_of(name: str, doc: str | None, parts: Iterable[str]) -> argparse.ArgumentParser:
    """Return a parser with the options of every benchmark; `only` is None unless given."""
    names = list(parts)

    def some(text: str) -> list[str]:
        chosen = text.split(",")
        if not set(chosen) <= set(names):
            raise argparse.ArgumentTypeError(f"{text}: expected some of {', '.join(names)}")
        return chosen

    parser = argparse.ArgumentParser(
        prog=f"python -m tests.benchmarks.{name}".rstrip("."), description=(doc or "").partition("\n")[0]
    )
    only = f"parts to run, of {', '.join(names)} (default: all)"
    parser.add_argument("--only", action="extend", type=some, metavar="PART[,PART]", help=only)
    parser.add_argument("--format", choices=("table", "json", "csv"), default="table")
    return parser


def measure(parts: Mapping[str, Part], options: argparse.Namespace) -> list[Row]:
    """Run the chosen parts in order; print their rows, and on stderr the load of others and the bars missed."""
    others, rows = Others(), list[Row]()
    for name, part in parts.items():
        if name in (options.only or parts):
            print(f"measuring {name}", file=sys.stderr)
            rows += [{"part": name, **row} for row in part()]
    share = others.share()
    render(rows, options.format, stream=sys.stdout)
    doubt = ", which is too much for these figures to be trusted" if share > QUIET else ""
    print(f"others took {share:.0%} of the machine meanwhile{doubt}", file=sys.stderr)
    missed = [str(row["what"]) for row in rows if row.get("met") is False]
    print(f"missed: {'; '.join(missed)}" if missed else "every bar is met", file=sys.stderr)
    return rows


def benchmark(name: str, doc: str | None, parts: Mapping[str, Part], argv: Sequence[str] | None = None) -> None:
    """Run the command of a benchmark that has no options of its own."""
    measure(parts, parser_of(name, doc, parts).parse_args(argv))


def _judged(figures: Sequence[float], bar: Bar | None) -> Row:
    spread = f"{min(figures):.4g} .. {max(figures):.4g}"
    return {"spread": spread} | ({} if bar is None else {"bar": str(bar), "met": bar.met(median(figures))})
