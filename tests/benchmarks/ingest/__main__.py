"""Ingest at full size against its bars: `make bench-ingest`; one trace on the disk at a time, in a folder it removes.

Run by hand at a tenth: `python -m tests.benchmarks.ingest --scale 0.1 --only a,c`.
"""

import argparse
import shutil
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import count
from pathlib import Path
from typing import Final

from pipelines.render import render
from pipelines.synth.pai import PUBLISHED_INSTANCES, PUBLISHED_TASKS, synthesise
from tests.benchmarks.ingest.children import Taken, run
from tests.benchmarks.ingest.published import write_helios, write_philly, write_philly_whole
from tests.benchmarks.serving.figures import Bar, Row, alternately, amount_row, ratio_row

RATE_BAR: Final = Bar(side="at least", value=0.5)
PEAK_BAR: Final = Bar(side="under", value=3072.0)
FLAT_BAR: Final = Bar(side="under", value=1.25)
PANDAS_SPEED_BAR: Final = Bar(side="at least", value=5.0)
PANDAS_MEMORY_BAR: Final = Bar(side="at most", value=0.2)
COPY_BAR: Final = Bar(side="at most", value=1.5)
TWO_SECONDS_BAR: Final = Bar(side="under", value=2.0)
SIZE_BAR: Final = Bar(side="under", value=0.15)
PARTS: Final = "abcde"


class Bench:
    """A scratch folder, the scale and the rounds; every output of a command has a new name and is removed."""

    def __init__(self, scratch: Path, scale: float, rounds: int) -> None:
        self.scratch, self.scale, self.rounds = scratch, scale, rounds
        self._numbers = count()

    @contextmanager
    def raw(self, write: Callable[[Path], object]) -> Iterator[Path]:
        """Have published files for a while."""
        folder = self.scratch / f"raw-{next(self._numbers)}"
        write(folder)
        try:
            yield folder
        finally:
            shutil.rmtree(folder)

    def taken(self, name: str, *arguments: object) -> Taken:
        """Run a command on files into an output that is removed."""
        folder = self.scratch / f"out-{next(self._numbers)}"
        folder.mkdir()
        try:
            return run(name, *arguments, folder / "out")
        finally:
            shutil.rmtree(folder)

    def ingested(self, source: str, raw: Path, lake: Path | None = None) -> Taken:
        """Ingest into a lake that is removed, or into one that is kept."""
        name = f"{source}-made"
        if lake is not None:
            return run("ingest", source, raw, lake, name)
        with tempfile.TemporaryDirectory(dir=self.scratch) as place:
            return run("ingest", source, raw, Path(place) / "lake", name)


def pai_rows(bench: Bench) -> list[Row]:
    """Compare an ingest of PAI with DuckDB reading the same files; then the lake's size, and a second ingest."""
    with bench.raw(lambda folder: _pai(folder, bench.scale)) as raw:
        found = alternately(
            {"ours": lambda: bench.ingested("pai", raw), "duckdb": lambda: bench.taken("duckdb_tables", raw)},
            bench.rounds,
        )
        rows = [
            ratio_row(
                "a",
                "PAI's seven tables ingested: rate",
                "DuckDB reads them into tables",
                *(_rates(found[who], raw) for who in ("ours", "duckdb")),
                unit="MB/s",
                bar=RATE_BAR,
            ),
            _cpu_row("a", found, "duckdb"),
            _peak_row("a", "PAI ingested: peak memory", found["ours"]),
        ]
        lake = bench.scratch / "lake"
        bench.ingested("pai", raw, lake)
        again = [bench.ingested("pai", raw, lake).seconds for _ in range(bench.rounds)]
        size = sum(p.stat().st_size for p in lake.rglob("*.parquet")) / _bytes(raw)
        rows.append(amount_row("a", "PAI's lake: share of the CSV", [size], unit="share", bar=SIZE_BAR))
        rows.append(amount_row("a", "PAI ingested again, unchanged", again, unit="s", bar=TWO_SECONDS_BAR))
        shutil.rmtree(lake)
    with bench.raw(lambda folder: _pai(folder, bench.scale / 2)) as raw:
        half = [bench.ingested("pai", raw).peak_mib for _ in range(bench.rounds)]
    rows.append(_flat_row("a", "PAI ingested: peak memory", [one.peak_mib for one in found["ours"]], half))
    return rows


def pandas_rows(bench: Bench) -> list[Row]:
    """Compare with the notebook's way in pandas at a tenth of the scale: from the files, and from a lake of them."""
    with bench.raw(lambda folder: _pai(folder, bench.scale / 10)) as raw:
        lake = bench.scratch / "lake"
        bench.ingested("pai", raw, lake)
        found = alternately(
            {
                "ours": lambda: bench.taken("ingest_and_ask", raw),
                "asked": lambda: run("ask", lake),
                "pandas": lambda: bench.taken("pandas_notebook", raw),
            },
            bench.rounds,
        )
        shutil.rmtree(lake)
    rates = {who: [1 / one.seconds for one in taken] for who, taken in found.items()}
    peaks = {who: [one.peak_mib for one in taken] for who, taken in found.items()}
    whole, again, against = (
        "PAI at a tenth, ingested and asked",
        "the same, asked of its lake",
        "pandas, as the notebook",
    )
    speed, memory = "answers/s", "MiB"
    return [
        ratio_row("b", whole, against, rates["ours"], rates["pandas"], unit=speed, bar=PANDAS_SPEED_BAR),
        _cpu_row("b", found, "pandas"),
        ratio_row("b", f"{whole}: memory", against, peaks["ours"], peaks["pandas"], unit=memory, bar=PANDAS_MEMORY_BAR),
        ratio_row("b", again, against, rates["asked"], rates["pandas"], unit=speed),
        ratio_row("b", f"{again}: memory", against, peaks["asked"], peaks["pandas"], unit=memory),
    ]


def philly_rows(bench: Bench) -> list[Row]:
    """Compare an ingest of Philly's GPU table with a plain copy to Parquet; then a group-by over the lake."""
    with bench.raw(lambda folder: write_philly(folder, bench.scale, seed=0)) as raw:
        found = alternately(
            {"ours": lambda: bench.ingested("philly", raw), "duckdb": lambda: bench.taken("duckdb_parquet", raw)},
            bench.rounds,
        )
        lake = bench.scratch / "lake"
        bench.ingested("philly", raw, lake)
    query = [float(run("group_by", lake).printed[0]) for _ in range(bench.rounds)]
    shutil.rmtree(lake)
    times = ([one.seconds for one in found[who]] for who in ("ours", "duckdb"))
    rows = [
        ratio_row("c", "Philly's GPU table ingested", "DuckDB copies it to Parquet", *times, unit="s", bar=COPY_BAR),
        _cpu_row("c", found, "duckdb"),
        _peak_row("c", "Philly ingested: peak memory", found["ours"]),
        amount_row("c", "mean per machine over the lake's minutes", query, unit="s", bar=TWO_SECONDS_BAR),
    ]
    with bench.raw(lambda folder: write_philly(folder, bench.scale / 2, seed=0)) as raw:
        half = [bench.ingested("philly", raw).peak_mib]
    rows.append(_flat_row("c", "Philly ingested: peak memory", [found["ours"][0].peak_mib], half))
    return rows


def philly_whole_rows(bench: Bench) -> list[Row]:
    """Measure an ingest of Philly's three utilisation tables, joined by minute, against plain copies of them."""
    with bench.raw(lambda folder: write_philly_whole(folder, bench.scale, seed=0)) as raw:
        found = alternately(
            {"ours": lambda: bench.ingested("philly", raw), "duckdb": lambda: bench.taken("duckdb_parquet", raw)},
            bench.rounds,
        )
    times = ([one.seconds for one in found[who]] for who in ("ours", "duckdb"))
    what, against = "Philly's three tables ingested, joined", "DuckDB copies each to Parquet"
    return [
        ratio_row("e", what, against, *times, unit="s"),
        _cpu_row("e", found, "duckdb"),
        _peak_row("e", "the same: peak memory", found["ours"]),
    ]


def helios_rows(bench: Bench) -> list[Row]:
    """Measure the memory of an ingest of all Helios jobs as one log."""
    with bench.raw(lambda folder: write_helios(folder, bench.scale, seed=0)) as raw:
        found = [bench.ingested("helios", raw) for _ in range(bench.rounds)]
    with bench.raw(lambda folder: write_helios(folder, bench.scale / 2, seed=0)) as raw:
        half = [bench.ingested("helios", raw).peak_mib for _ in range(bench.rounds)]
    what = "Helios ingested: peak memory"
    return [_peak_row("d", what, found), _flat_row("d", what, [one.peak_mib for one in found], half)]


def _pai(folder: Path, scale: float) -> None:
    tasks, instances = max(1000, round(PUBLISHED_TASKS * scale)), round(PUBLISHED_INSTANCES * scale)
    synthesise(folder, tasks=tasks, instances=instances, seed=0)


def _bytes(raw: Path) -> int:
    return sum(p.stat().st_size for p in raw.glob("*.csv"))


def _rates(taken: list[Taken], raw: Path) -> list[float]:
    return [_bytes(raw) / 1e6 / one.seconds for one in taken]


def _cpu_row(part: str, found: dict[str, list[Taken]], base: str) -> Row:
    ours, theirs = ([one.cpu_s for one in found[who]] for who in ("ours", base))
    return ratio_row(part, "the same: processor time", base, ours, theirs, unit="s")


def _peak_row(part: str, what: str, taken: list[Taken]) -> Row:
    return amount_row(part, what, [one.peak_mib for one in taken], unit="MiB", bar=PEAK_BAR)


def _flat_row(part: str, what: str, whole: list[float], half: list[float]) -> Row:
    return ratio_row(part, what, "half the rows", whole, half, unit="MiB", bar=FLAT_BAR)


def _judged(row: Row) -> Row:
    """Return a row with the figure that its bar is held to, and the verdict in a word."""
    figure = row["measured"] if row["ratio"] is None else row["ratio"]
    verdict = None if row["met"] is None else "met" if row["met"] else "missed"
    told = {name: row[name] for name in ("part", "what", "measured", "unit", "against", "base", "spread")}
    return told | {"figure": figure, "bar": row["bar"], "verdict": verdict}


def main(argv: list[str] | None = None) -> None:
    """Measure, and print the table of what was measured, its bar and the verdict."""
    parser = argparse.ArgumentParser(
        prog="python -m tests.benchmarks.ingest", description=(__doc__ or "").split("\n")[0]
    )
    parser.add_argument("--only", default=PARTS, help="parts, such as a,c (default: all)")
    parser.add_argument("--scale", type=float, default=1.0, help="share of the published rows (default: 1)")
    parser.add_argument("--rounds", type=int, default=3, help="runs per median (default: 3)")
    parser.add_argument("--scratch", type=Path, help="folder for temporary files (default: the system's)")
    asked = parser.parse_args(argv)
    rows: list[Row] = []
    parts = (pai_rows, pandas_rows, philly_rows, helios_rows, philly_whole_rows)
    measures = dict(zip(PARTS, parts, strict=True))
    with tempfile.TemporaryDirectory(prefix="taut-bench-", dir=asked.scratch) as scratch:
        for part, measured in measures.items():
            if part in asked.only:
                print(f"measuring ingest {part}", file=sys.stderr)
                rows += measured(Bench(Path(scratch), asked.scale, asked.rounds))
    render([_judged(row) for row in rows], "table", stream=sys.stdout)


if __name__ == "__main__":
    main()
