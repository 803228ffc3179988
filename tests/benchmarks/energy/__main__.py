"""Decisions on energy, carbon and money against their bars: part of `make bench`.

Run by hand: `python -m tests.benchmarks.energy --only cost`.
"""

import argparse
import sys

from tests.benchmarks.energy.accounting import accounting_rows
from tests.benchmarks.energy.carbon import carbon_rows
from tests.benchmarks.energy.cost import cost_rows
from tests.benchmarks.energy.routes import route_rows
from tests.benchmarks.energy.sites import sites_rows
from tests.benchmarks.serving.figures import Row, tell

PARTS = {
    "accounting": accounting_rows,
    "carbon": carbon_rows,
    "cost": cost_rows,
    "routes": route_rows,
    "sites": sites_rows,
}


def rows_of(parts: list[str]) -> list[Row]:
    """Measure the parts in order."""
    rows: list[Row] = []
    for part in parts:
        print(f"measuring {part}", file=sys.stderr)
        rows += PARTS[part]()
    return rows


def main(argv: list[str] | None = None) -> None:
    """Measure, print the table, and say on stderr which bars were missed."""
    parser = argparse.ArgumentParser(prog="python -m tests.benchmarks.energy", description=__doc__.splitlines()[0])
    parser.add_argument("--only", choices=tuple(PARTS), help="one part (default: all)")
    parser.add_argument("--format", choices=("table", "json", "csv"), default="table")
    asked = parser.parse_args(argv)
    rows = rows_of([asked.only] if asked.only else list(PARTS))
    tell(rows, asked.format)


if __name__ == "__main__":
    main()
