"""Ingest at full size against its bars: `make bench-ingest`; one trace on the disk at a time, in a folder it removes.

Run by hand at a tenth: `python -m tests.benchmarks.ingest --scale 0.1 --only philly`.
"""

import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Final

from pipelines.synth.pai import PUBLISHED_INSTANCES, PUBLISHED_TASKS, synthesise
from tests.benchmarks.harness import Bar, Row, Taken, alternately, amount_row, child, measure, parser_of, ratio_row
from tests.benchmarks.ingest.published import write_philly

RATE_BAR: Final = Bar(side="at least", value=0.5)
PEAK_BAR: Final = Bar(side="under", value=3072.0)
FLAT_BAR: Final = Bar(side="under", value=1.25)
COPY_BAR: Final = Bar(side="at most", value=1.5)
AGAIN_BAR: Final = Bar(side="under", value=2.0)
SIZE_BAR: Final = Bar(side="under", value=0.15)


@dataclass(frozen=True, slots=True, kw_only=True)
class Bench:
    """The share of the published rows, and the rounds."""

    scale: float
    rounds: int

    @contextmanager
    def raw(self, write: Callable[[Path, float], object], share: float = 1.0) -> Iterator[Path]:
        """Have published files of a share of the scale for a while, with room for outputs beside them."""
        with tempfile.TemporaryDirectory(prefix="taut-bench-") as place:
            write(Path(place) / "raw", self.scale * share)
            yield Path(place) / "raw"


def taken(name: str, raw: Path, *arguments: str) -> Taken:
    """Run one of `commands` on files into an output that is removed; what it prints last is its peak memory in KiB."""
    with tempfile.TemporaryDirectory(dir=raw.parent) as place:
        return run(name, raw, Path(place) / "out", *arguments)


def run(name: str, *arguments: object) -> Taken:
    """Run one of `commands`."""
    ran = child([sys.executable, "-m", "tests.benchmarks.ingest.commands", name, *arguments])
    return Taken(seconds=ran.seconds, cpu_s=ran.cpu_s, peak_mib=int(ran.output.split()[-1]) / 1024, output=ran.output)


def pai_rows(bench: Bench) -> list[Row]:
    """Compare an ingest of PAI with DuckDB reading the same files; then the lake's size, and a second ingest."""
    with bench.raw(_pai) as raw:
        runs = alternately(
            {"ours": partial(taken, "ingest", raw, "pai"), "duckdb": partial(taken, "duckdb_tables", raw)}, bench.rounds
        )
        size, lake = sum(p.stat().st_size for p in raw.glob("*.csv")), raw.parent / "lake"
        run("ingest", raw, lake, "pai")
        again = [run("ingest", raw, lake, "pai").seconds for _ in range(bench.rounds)]
        share = sum(p.stat().st_size for p in lake.rglob("*.parquet")) / size
    what, against = "PAI's seven tables ingested", "DuckDB reads them into tables"
    rates = ([size / 1e6 / each.seconds for each in runs[who]] for who in ("ours", "duckdb"))
    return [
        ratio_row(f"{what}: rate", against, *rates, unit="MB/s", bar=RATE_BAR),
        *_costs(bench, what, against, runs, _pai, "pai"),
        amount_row("PAI's lake: share of the CSV", [share], unit="share", bar=SIZE_BAR),
        amount_row("PAI ingested again, unchanged", again, unit="s", bar=AGAIN_BAR),
    ]


def philly_rows(bench: Bench) -> list[Row]:
    """Compare an ingest of Philly's GPU table with a plain copy to Parquet."""
    with bench.raw(write_philly) as raw:
        runs = alternately(
            {"ours": partial(taken, "ingest", raw, "philly"), "duckdb": partial(taken, "duckdb_parquet", raw)},
            bench.rounds,
        )
    what, against = "Philly's GPU table ingested", "DuckDB copies it to Parquet"
    times = ([each.seconds for each in runs[who]] for who in ("ours", "duckdb"))
    row = ratio_row(what, against, *times, unit="s", bar=COPY_BAR)
    return [row, *_costs(bench, what, against, runs, write_philly, "philly")]


def _costs(
    bench: Bench,
    what: str,
    against: str,
    runs: dict[str, list[Taken]],
    write: Callable[[Path, float], object],
    source: str,
) -> list[Row]:
    """Return rows on processor time, peak memory, and peak memory over that of half the rows."""
    with bench.raw(write, 0.5) as raw:
        half = [taken("ingest", raw, source).peak_mib for _ in range(bench.rounds)]
    cpu = ([each.cpu_s for each in runs[who]] for who in ("ours", "duckdb"))
    peak = [each.peak_mib for each in runs["ours"]]
    return [
        ratio_row(f"{what}: processor time", against, *cpu, unit="s"),
        amount_row(f"{what}: peak memory", peak, unit="MiB", bar=PEAK_BAR),
        ratio_row(f"{what}: peak memory", "half the rows", peak, half, unit="MiB", bar=FLAT_BAR),
    ]


def _pai(folder: Path, scale: float) -> None:
    tasks, instances = max(1000, round(PUBLISHED_TASKS * scale)), round(PUBLISHED_INSTANCES * scale)
    synthesise(folder, tasks=tasks, instances=instances, seed=0)


PARTS: Final = {"pai": pai_rows, "philly": philly_rows}


def main(argv: Sequence[str] | None = None) -> None:
    """Measure, and print the table."""
    parser = parser_of("ingest", __doc__, PARTS)
    parser.add_argument("--scale", type=float, default=1.0, help="share of the published rows (default: 1)")
    parser.add_argument("--rounds", type=int, default=3, help="runs per median (default: 3)")
    options = parser.parse_args(argv)
    bench = Bench(scale=options.scale, rounds=options.rounds)
    measure({name: partial(part, bench) for name, part in PARTS.items()}, options)


if __name__ == "__main__":
    main()
