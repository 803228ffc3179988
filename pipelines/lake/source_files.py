"""A source's files on the disk: the clusters of a folder, which file holds which table, and each as one to be read.

What files mean is the source's declaration; unpacking them is `pipelines.lake.sources.archive`'s.
Called by `pipelines.lake.ingest` and `pipelines.lake.checking`.
"""

import re
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from pipelines.errors import BadUsage, SourceError
from pipelines.lake.sources import SOURCES
from pipelines.lake.sources.archive import Found, expected_names, find, unpack
from pipelines.lake.sources.source import Source
from pipelines.lake.staging import Published

SAFE_CLUSTER: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*")


@dataclass(frozen=True, slots=True, kw_only=True)
class Cluster:
    """A cluster and its files."""

    name: str
    files: tuple[Found, ...]


def source_named(name: str) -> Source:
    """Return a published source.

    Raises
    ------
    BadUsage
        If there is none of the name.
    """
    if name not in SOURCES:
        raise BadUsage(f"no source {name!r}; expected one of {', '.join(SOURCES)}")
    return SOURCES[name]


def clusters_in(source: Source, folder: Path) -> list[Cluster]:
    """Find every cluster's files, and know what is absent before anything is read."""
    if not folder.is_dir():
        raise SourceError(
            f"no folder {folder}; expected the published files of {source.name}. Get them with `taut fetch`."
        )
    found = []
    for name, place in source.clusters(folder).items():
        if not SAFE_CLUSTER.fullmatch(name):
            raise SourceError(f"a cluster folder named {name[:80]!r}; expected letters, digits and . _ -. Rename it.")
        tables = [table.of(name) for table in source.tables]
        files = {table.name: find(table, place) for table in tables}
        for table in tables:
            if table.required and files[table.name] is None:
                raise SourceError(f"no {table.name} table in {place}; expected {expected_names(table)}")
        found.append(Cluster(name=name, files=tuple(f for f in files.values() if f)))
    if not found:
        required = " and ".join(expected_names(t) for t in source.tables if t.required)
        raise SourceError(f"no cluster of {source.name} in {folder}; expected folders with {required}")
    return found


def published_tables(source: Source, cluster: Cluster, folder: Path, stage: Path) -> tuple[list[Published], list[str]]:
    """Return every table of a cluster with a plain file to read, and the names of those that are absent."""
    plain = unpack(cluster.files, stage)
    files = {f.table.name: f.path.relative_to(folder).as_posix() for f in cluster.files}
    for table in source.tables:
        if table.records is not None and table.name in plain:
            split = stage / f"{table.name}.records"
            table.records(plain[table.name], split)
            plain[table.name] = split
    published = [Published(table=t, file=files.get(t.name), plain=plain.get(t.name)) for t in source.tables]
    for one in published:
        if one.table.required and one.plain is None:
            raise SourceError(f"{one.file} lacks the {one.table.name} table; expected {expected_names(one.table)}")
    return published, [one.table.name for one in published if one.plain is None]
