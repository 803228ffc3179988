"""Load the files of one cluster and place its tables in the lake: the unit of work of an ingest.

Rules compare the tables of a cluster, and keys within a whole file, so a smaller unit would need a second pass. Nothing
is visible to readers before `pipelines.lake.ingest` commits the manifest.
"""

from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

from pipelines.lake.connections import configured
from pipelines.lake.inputs import Cluster, published_tables
from pipelines.lake.lake import Lake
from pipelines.lake.manifest import Account, Output
from pipelines.lake.problems import Problem, problems_of
from pipelines.lake.sources.archive import Published
from pipelines.lake.sources.source import Source
from pipelines.lake.staging import load, parts, remarks, select_of, write
from pipelines.lake.views import QUARANTINE

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
    """What the clusters of one ingest share; `say` is None in other processes, which report nothing.

    A dry run collects problems in `problems`, also those found before loading fails.
    """

    lake: str
    source: Source
    trace: str
    folder: Path
    threads: int | None
    say: Progress | None
    problems: list[Problem] | None = None


def load_cluster(loading: Loading, cluster: Cluster) -> Built:
    """Load a cluster's files and place its tables; readers do not see the tables until the commit.

    Repeating it changes nothing: it stages in a folder of its own, and a placed file is named by its content.
    """
    lake, source, say = Lake(loading.lake), loading.source, loading.say or (lambda *_: None)
    outputs = []
    with lake.storage.staged(cluster.name) as stage:
        published = published_tables(source, cluster, loading.folder, stage)
        total = sum(_size(one) for one in published)
        warnings = [f"no {one.table.name} table: its columns are empty or null" for one in published if not one.plain]
        with (
            TemporaryDirectory(dir=stage) as scratch,
            closing(configured(Path(scratch, "work.duckdb"), spill=Path(scratch), threads=loading.threads)) as work,
        ):
            try:
                accounts = load(work, source, cluster.name, _watched(published, cluster.name, say), stage)
            finally:
                if loading.problems is not None:
                    loading.problems.extend(problems_of(work, source, cluster.name, published))
            warnings += remarks(work, source)
            selects = {output: select_of(work, source, output) for output in source.outputs}
            selects[QUARANTINE] = f"SELECT * FROM {QUARANTINE}"
            for table, select in selects.items():
                say(f"writing {table} of {cluster.name}", total, total)
                for part in parts(work, source, table):
                    target = stage / f"{table}.parquet"
                    rows = write(work, select, part, table, loading.trace, cluster.name, target)
                    if rows:
                        outputs.append(lake.place(target, table, loading.trace, cluster.name, rows))
    return Built(accounts=accounts, outputs=outputs, warnings=[f"{cluster.name}: {text}" for text in warnings])


def _watched(published: list[Published], cluster: str, say: Progress) -> Iterator[Published]:
    """Yield the files one by one, and report each before it is read."""
    done, total = 0, sum(_size(one) for one in published)
    for one in published:
        say(f"reading {one.table.name} of {cluster}", done, total)
        yield one
        done += _size(one)


def _size(one: Published) -> int:
    return one.plain.stat().st_size if one.plain else 0
