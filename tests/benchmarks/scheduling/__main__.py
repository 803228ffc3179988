"""The scheduler core against its bars: part of `make bench`.

Run by hand: `python -m tests.benchmarks.scheduling --only a,c`; with TAUT_TRACES set, Philly's own log is replayed.
"""

import argparse
import sys
from collections.abc import Callable
from pathlib import Path

from tests.benchmarks.scheduling import growth
from tests.benchmarks.scheduling.engines import memory_rows, philly_rows, small_rows
from tests.benchmarks.scheduling.reclaim import reclaim_rows
from tests.benchmarks.scheduling.replay import replay_rows
from tests.benchmarks.scheduling.rounds import round_rows
from tests.benchmarks.serving.__main__ import default_cache
from tests.benchmarks.serving.figures import Row, tell

PARTS = "abcdefg"


def rows_of(parts: str, cache: Path, out: Path | None) -> list[Row]:
    """Measure the parts in order: small clusters, Philly's, growth, memory, a round, a replay, and reclaiming."""

    def grown() -> list[Row]:
        found = growth.points()
        if out is not None:
            growth.draw(found, out)
        return growth.growth_rows(found)

    measures: list[Callable[[], list[Row]]] = [
        small_rows,
        philly_rows,
        grown,
        memory_rows,
        lambda: round_rows(cache),
        replay_rows,
        reclaim_rows,
    ]
    rows: list[Row] = []
    for part, measured in zip(PARTS, measures, strict=True):
        if part in parts:
            print(f"measuring scheduling {part}", file=sys.stderr)
            rows += measured()
    return rows


def main(argv: list[str] | None = None) -> None:
    """Measure, print the table, and say on stderr which bars were missed."""
    parser = argparse.ArgumentParser(prog="python -m tests.benchmarks.scheduling", description=__doc__.splitlines()[0])
    parser.add_argument("--only", default=PARTS, help="parts, such as a,c (default: all)")
    parser.add_argument("--format", choices=("table", "json", "csv"), default="table")
    parser.add_argument("--out", type=Path, help="folder for the growth charts")
    parser.add_argument("--cache", type=Path, default=default_cache(), help="folder kept between runs")
    asked = parser.parse_args(argv)
    parts = "".join(sorted(set(asked.only.replace(",", ""))))
    if not parts or set(parts) - set(PARTS):
        parser.error(f"--only {asked.only}: expected some of {', '.join(PARTS)}")
    asked.cache.mkdir(parents=True, exist_ok=True)
    rows = rows_of(parts, asked.cache, asked.out)
    tell(rows, asked.format)


if __name__ == "__main__":
    main()
