"""The prediction service against its bars: `make bench-serve`.

Every figure is a ratio of two things measured in turn in one run, or an amount; the server has one core, and what asks
it the other. Run by hand: `python -m tests.benchmarks.serving --only a,d`.
"""

import argparse
import os
import shutil
import sys
import tempfile
from pathlib import Path

from pipelines.render import render
from tests.benchmarks.serving.batches import batch_rows
from tests.benchmarks.serving.figures import Row, tell_missed
from tests.benchmarks.serving.footprint import memory_rows, ready_rows
from tests.benchmarks.serving.latency import latency_rows
from tests.benchmarks.serving.models import trained
from tests.benchmarks.serving.processes import Others
from tests.benchmarks.serving.stage import Stage
from tests.benchmarks.serving.throughput import throughput_rows

ALONE = {"d": latency_rows, "e": batch_rows, "f": memory_rows, "g": ready_rows}
"""Parts that need no other server; a, b and c share theirs."""
PARTS = "abcdefg"
NEEDED_CORES = 2
QUIET = 0.05
DISTURBED = ", which is too much for these figures to be trusted"
TOOLS = {"wrk": "wrk", "taskset": "util-linux"}
"""What has to be installed, and the Debian package it is in."""


def rows_of(stage: Stage, parts: str) -> list[Row]:
    """Measure the parts in order."""
    rows: list[Row] = []
    if together := "".join(part for part in parts if part not in ALONE):
        print(f"measuring {', '.join(together)}", file=sys.stderr)
        rows += throughput_rows(stage, together)
    for part, measured in ALONE.items():
        if part in parts:
            print(f"measuring {part}", file=sys.stderr)
            rows += measured(stage)
    return rows


def default_cache() -> Path:
    """Return the user's cache folder for what one run leaves to the next: models, and MLServer's environment."""
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "taut-bench"


def check_machine() -> None:
    """End with what is missing, before anything is trained."""
    missing = [f"{tool} (apt-get install {package})" for tool, package in TOOLS.items() if not shutil.which(tool)]
    if missing:
        raise SystemExit(f"not installed: {', '.join(missing)}")
    if (os.cpu_count() or 1) < NEEDED_CORES:
        raise SystemExit("found one core, expected two: one for the server, one for what asks it")


def main() -> None:
    """Measure, print the table, and say on stderr which bars were missed."""
    parser = argparse.ArgumentParser(prog="python -m tests.benchmarks.serving", description=__doc__.splitlines()[0])
    parser.add_argument("--only", default=",".join(PARTS), help="parts, such as a,d (default: all)")
    parser.add_argument("--rounds", type=int, default=5, help="alternating rounds (default: 5)")
    parser.add_argument("--seconds", type=float, default=3.0, help="load of one round (default: 3)")
    parser.add_argument("--format", choices=("table", "json", "csv"), default="table")
    parser.add_argument("--cache", type=Path, default=default_cache(), help="folder kept between runs")
    asked = parser.parse_args()
    parts = "".join(sorted(set(asked.only.replace(",", ""))))
    if not parts or set(parts) - set(PARTS):
        parser.error(f"--only {asked.only}: expected some of {', '.join(PARTS)}")
    check_machine()
    asked.cache.mkdir(parents=True, exist_ok=True)
    models = trained(asked.cache)
    print(f"the compared model: {models.shape}", file=sys.stderr)
    with tempfile.TemporaryDirectory(prefix="taut-bench-") as scratch:
        stage = Stage(
            models=models, scratch=Path(scratch), cache=asked.cache, rounds=asked.rounds, seconds=asked.seconds
        )
        others = Others()
        rows = rows_of(stage, parts)
        share = others.share()
    render(rows, asked.format, stream=sys.stdout)
    print(f"others took {share:.0%} of the machine meanwhile{DISTURBED if share > QUIET else ''}", file=sys.stderr)
    tell_missed(rows)


if __name__ == "__main__":
    main()
