"""The scheduler core against its bars: part of `make bench`.

Run by hand: `python -m tests.benchmarks.scheduling --only a,c`; with TAUT_TRACES set, Philly's own log is replayed.
"""

import argparse
import sys
from pathlib import Path

from pipelines.render import render
from tests.benchmarks.scheduling.engines import growth_rows, memory_rows, philly_rows, small_rows
from tests.benchmarks.scheduling.rounds import round_rows
from tests.benchmarks.serving.__main__ import default_cache
from tests.benchmarks.serving.figures import Row

PARTS = {"a": small_rows, "b": philly_rows, "c": growth_rows, "d": memory_rows}
ROUND = "e"
"""The part that needs trained models, which are kept between runs."""


def rows_of(parts: str, cache: Path) -> list[Row]:
    """Measure the parts in order."""
    rows: list[Row] = []
    for part in parts:
        print(f"measuring scheduling {part}", file=sys.stderr)
        rows += round_rows(cache) if part == ROUND else PARTS[part]()
    return rows


def main(argv: list[str] | None = None) -> None:
    """Measure, print the table, and say on stderr which bars were missed."""
    every = "".join([*PARTS, ROUND])
    said = argparse.ArgumentParser(prog="python -m tests.benchmarks.scheduling", description=__doc__.splitlines()[0])
    said.add_argument("--only", default=every, help="parts, such as a,c (default: all)")
    said.add_argument("--format", choices=("table", "json", "csv"), default="table")
    said.add_argument("--cache", type=Path, default=default_cache(), help="folder kept between runs")
    asked = said.parse_args(argv)
    parts = "".join(sorted(set(asked.only.replace(",", ""))))
    if not parts or set(parts) - set(every):
        said.error(f"--only {asked.only}: expected some of {', '.join(every)}")
    asked.cache.mkdir(parents=True, exist_ok=True)
    rows = rows_of(parts, asked.cache)
    told = [{name: value for name, value in row.items() if name not in ("against", "base", "ratio")} for row in rows]
    render(told, asked.format, stream=sys.stdout)
    missed = [str(row["what"]) for row in rows if row["met"] is False]
    print(f"missed: {'; '.join(missed)}" if missed else "every bar is met", file=sys.stderr)


if __name__ == "__main__":
    main()
