"""Benchmarks in parts: ratios on a synthetic trace, then scheduling, placements, energy, the report, and a real Slurm.

A ratio times two things in turn on the same machine; nothing passes or fails. `make bench` runs all parts.
Run by hand: `python -m tests.benchmarks --only ratios`; `--help` lists the parts.
"""

import argparse
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from itertools import count
from pathlib import Path
from statistics import median
from typing import Final

import duckdb

from features.build import build
from features.history import History
from pipelines.lake.ingest import ingest
from pipelines.lake.lake import Lake
from pipelines.render import render
from pipelines.simulation.advice import ConstantPredictor
from pipelines.synth.pai import synthesise
from scheduler_core.shrink import shrink
from scheduler_core.types import Job, Request
from tests.benchmarks.energy.__main__ import main as energy
from tests.benchmarks.report.__main__ import main as opening
from tests.benchmarks.scheduling.__main__ import main as scheduling
from tests.benchmarks.sharing.__main__ import main as sharing
from tests.benchmarks.slurm.__main__ import main as slurm

TASKS = 20_000
RUNS = 3

Row = dict[str, object]


def ratio(what: str, against: str, measured: Callable[[], object], base: Callable[[], object]) -> Row:
    """Time both in turn, `RUNS` times, and return the medians and the median of their ratios."""
    pairs = [(_seconds(measured), _seconds(base)) for _ in range(RUNS)]
    return {
        "what": what,
        "against": against,
        "seconds": median(m for m, _ in pairs),
        "base_seconds": median(b for _, b in pairs),
        "ratio": median(m / b for m, b in pairs),
    }


def _seconds(run: Callable[[], object]) -> float:
    start = time.perf_counter()
    run()
    return time.perf_counter() - start


def ingest_rows(raw: Path, scratch: Path) -> list[Row]:
    """Compare an ingest with DuckDB reading the same files into tables, and a second ingest with the first."""
    lakes = (scratch / f"lake{number}" for number in count())
    kept = scratch / "kept"
    ingest("pai", raw, kept, as_name="pai-synth")

    def plain() -> None:
        with duckdb.connect() as connection:
            for place, file in enumerate(sorted(raw.glob("*.csv"))):
                # Numbers the tables: two files may not share a name.
                connection.sql(f"CREATE TABLE t{place} AS FROM read_csv('{file}', header=false, all_varchar=true)")

    def whole() -> None:
        ingest("pai", raw, next(lakes), as_name="pai-synth")

    def again() -> None:
        ingest("pai", raw, kept, as_name="pai-synth")

    return [
        ratio("ingest", "DuckDB reading the files", whole, plain),
        ratio("ingest of unchanged files", "the first ingest", again, whole),
    ]


def feature_rows(lake: Lake) -> list[Row]:
    """Compare the features of one job, built alone, with those of a batch."""
    jobs = lake.table("jobs", "pai-synth").collect()
    history = History.of(jobs)
    batch, one = jobs.head(10_000), jobs.tail(1)
    return [
        ratio(
            "features of one job",
            "of 10 000 jobs",
            lambda: build(one, history, "submit"),
            lambda: build(batch, history, "submit"),
        )
    ]


def shrink_rows() -> list[Row]:
    """Compare shrinking 1000 jobs in one call with one call a job."""
    request = Request(cpu_cores=6.0, mem_gib=29.3, gpus=0.5)
    jobs = [Job(job_id=str(n), trace="made", task_type="ctr", request=request) for n in range(1000)]
    predictor = ConstantPredictor(run_s=600.0, peak=Request(cpu_cores=4.0, mem_gib=4.0, gpus=0.25))
    together, apart = (lambda: shrink(jobs, predictor)), (lambda: [shrink([job], predictor) for job in jobs])
    return [ratio("shrink 1000 jobs at once", "one call a job", together, apart)]


def ratios() -> None:
    """Print the ratios of ingest, features and shrinking as one table."""
    with tempfile.TemporaryDirectory() as folder:
        raw, scratch = Path(folder) / "raw", Path(folder)
        synthesise(raw, tasks=TASKS, seed=0)
        rows = ingest_rows(raw, scratch)
        with Lake(scratch / "kept") as lake:
            rows += feature_rows(lake)
        render(rows + shrink_rows(), "table", stream=sys.stdout)


PARTS: Final[dict[str, Callable[[], None]]] = {
    "ratios": ratios,
    "scheduling": lambda: scheduling([]),
    "sharing": lambda: sharing([]),
    "energy": lambda: energy([]),
    "report": lambda: opening([]),
    "slurm": lambda: slurm([]),
}
ALONE: Final = ("prometheus", "serving", "ingest", "serving.soak", "scale", "faults")
"""Benchmarks that run only by themselves: of Prometheus, `make bench-serve`, `make bench-ingest`, `make soak`."""


def main(argv: Sequence[str] | None = None) -> None:
    """Run the chosen parts in order, all by default."""
    parser = argparse.ArgumentParser(
        prog="python -m tests.benchmarks",
        description=(__doc__ or "").partition("\n")[0],
        epilog="Each part but ratios has options of its own: python -m tests.benchmarks.PART --help. "
        f"Not included, run by themselves: {', '.join(f'tests.benchmarks.{name}' for name in ALONE)}.",
    )
    parser.add_argument("--only", action="append", choices=tuple(PARTS), help="one part (repeatable)")
    for part in parser.parse_args(argv).only or PARTS:
        PARTS[part]()


if __name__ == "__main__":
    main()
