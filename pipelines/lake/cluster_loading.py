"""Load the files of one cluster and place its tables in the lake: the unit of work of an ingest.

Rules compare the tables of a cluster, and keys within a whole file, so a smaller unit would need a second pass. Nothing
is visible to readers before `pipelines.lake.ingest` commits the manifest. Called by `pipelines.lake.ingest`.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final

import duckdb

from pipelines.lake.commits import place
from pipelines.lake.connections import MEMORY_MB
from pipelines.lake.inputs import Cluster, published_tables
from pipelines.lake.lake import Lake
from pipelines.lake.manifest import Account, Output
from pipelines.lake.shortcuts import select_of
from pipelines.lake.sources.archive import Published
from pipelines.lake.sources.source import Source
from pipelines.lake.staging import load, parts, remarks, write
from pipelines.lake.views import QUARANTINE

MEMORY_LEAST_MB: Final = 160
BYTES_PER_MEMORY_BYTE: Final = 2
"""Bytes of input for each byte of DuckDB's memory limit. A lower limit makes DuckDB write to disk often; a higher one
hardly makes it faster."""


Progress = Callable[[str, int, int], None]
"""Receives what is being done, and how many bytes of the cluster's files are read, of how many."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Built:
    """The result of loading one cluster: row counts per table, written files, and warnings."""

    accounts: list[Account]
    outputs: list[Output]
    warnings: list[str]


@dataclass(frozen=True, slots=True, kw_only=True)
class Loading:
    """What the clusters of one ingest share; `say` is None in other processes, which report nothing."""

    lake: str
    source: Source
    trace: str
    folder: Path
    threads: int | None
    say: Progress | None


def load_cluster(loading: Loading, cluster: Cluster) -> Built:
    """Load a cluster's files and place its tables.

    Repeating it changes nothing: it stages in a folder of its own, and a placed file is named by its content.
    """
    lake, source, say = Lake(loading.lake), loading.source, loading.say or (lambda *_: None)
    with lake.storage.staged(cluster.name) as stage:
        published, absent = published_tables(source, cluster, loading.folder, stage)
        warnings = [f"{cluster.name}: no {name} table: its columns are empty or null" for name in absent]
        memory = memory_mb(published)
        build = partial(_built, lake, source, loading.trace, cluster.name, published, stage)
        try:
            built = build(memory, loading.threads, say)
        except duckdb.OutOfMemoryException:
            # The limit estimated from file sizes was too low; repeat with the maximum.
            built = build(MEMORY_MB, loading.threads, say)
    return replace(built, warnings=warnings + built.warnings)


def _watched(published: list[Published], cluster: str, say: Progress) -> Iterator[Published]:
    """Yield the files one by one, and report each before it is read."""
    done, total = 0, sum(_size(one) for one in published)
    for one in published:
        say(f"reading {one.table.name} of {cluster}", done, total)
        yield one
        done += _size(one)


def _size(one: Published) -> int:
    return 0 if one.plain is None else one.plain.stat().st_size


def memory_mb(published: list[Published]) -> int:
    """Return DuckDB's memory limit in MB: it grows with the files' size; a JSON array gets the maximum."""
    if any(one.table.json_array for one in published if one.plain is not None):
        return MEMORY_MB
    wanted = sum(_size(one) for one in published) // BYTES_PER_MEMORY_BYTE // 1_000_000
    return min(MEMORY_MB, max(MEMORY_LEAST_MB, wanted))


def _built(
    lake: Lake,
    source: Source,
    trace: str,
    cluster: str,
    published: list[Published],
    stage: Path,
    memory: int,
    threads: int | None,
    say: Progress,
) -> Built:
    """Load a cluster's files and write its tables; readers do not see the tables until the commit."""
    outputs, read_bytes = [], sum(_size(one) for one in published)
    with TemporaryDirectory(dir=stage) as scratch, lake.workbench(Path(scratch), memory, threads) as work:
        accounts = load(work, source, cluster, _watched(published, cluster, say))
        warnings = [f"{cluster}: {text}" for text in remarks(work, source)]
        selects = {output: select_of(work, source, output) for output in source.outputs}
        selects[QUARANTINE] = f"SELECT * FROM {QUARANTINE}"
        for table, select in selects.items():
            say(f"writing {table} of {cluster}", read_bytes, read_bytes)
            for part in parts(work, source, table):
                target = stage / f"{table}.parquet"
                rows = write(work, select, part, table, trace, cluster, target)
                if rows:
                    outputs.append(place(lake, target, table, trace, cluster, rows))
    return Built(accounts=accounts, outputs=outputs, warnings=warnings)
