"""Placements by devices against their bars: part of `make bench`.

Run by hand: `python -m tests.benchmarks.sharing --only a`; with TAUT_TRACES set, on the public cluster's own lists.
"""

import argparse
import sys

from tests.benchmarks.serving.figures import Row, tell
from tests.benchmarks.sharing.decisions import cold_rows, decision_rows, run_rows

PARTS = {"a": decision_rows, "b": run_rows, "c": cold_rows}


def rows_of(parts: str) -> list[Row]:
    """Measure the parts in order."""
    rows: list[Row] = []
    for part in parts:
        print(f"measuring sharing {part}", file=sys.stderr)
        rows += PARTS[part]()
    return rows


def main(argv: list[str] | None = None) -> None:
    """Measure, print the table, and say on stderr which bars were missed."""
    every = "".join(PARTS)
    parser = argparse.ArgumentParser(prog="python -m tests.benchmarks.sharing", description=__doc__.splitlines()[0])
    parser.add_argument("--only", default=every, help="parts, such as a,c (default: all)")
    parser.add_argument("--format", choices=("table", "json", "csv"), default="table")
    asked = parser.parse_args(argv)
    parts = "".join(sorted(set(asked.only.replace(",", ""))))
    if not parts or set(parts) - set(every):
        parser.error(f"--only {asked.only}: expected some of {', '.join(every)}")
    rows = rows_of(parts)
    tell(rows, asked.format)


if __name__ == "__main__":
    main()
