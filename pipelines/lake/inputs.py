"""Input handling shared by ingest and check: find source, trace name, clusters and files; refuse bad input.

The sources declare the meaning of files; `pipelines.lake.sources.archive` unpacks them; no row is loaded here.
"""

import re
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from pipelines.errors import BadUsage, SourceError
from pipelines.lake.lake import Lake
from pipelines.lake.manifest import Manifest
from pipelines.lake.sources import SOURCES
from pipelines.lake.sources.archive import Found, Published, expected_names, find, unpack
from pipelines.lake.sources.source import CLUSTER, Source
from pipelines.synth.published import SYNTHETIC_MARK, SYNTHETIC_NAME

__all__ = ["check_trace_name"]

SAFE_CLUSTER: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*")


@dataclass(frozen=True, slots=True, kw_only=True)
class Cluster:
    """A cluster of a trace and the files with its tables."""

    name: str
    files: tuple[Found, ...]

    def __str__(self) -> str:
        """Return the cluster as messages name it."""
        return f"cluster {self.name}"


def source_named(name: str) -> Source:
    """Return the published source called `name`."""
    if name not in SOURCES:
        raise BadUsage(f"no source {name!r}; expected one of {', '.join(SOURCES)}")
    return SOURCES[name]


def clusters_in(source: Source, folder: Path) -> list[Cluster]:
    """Return every cluster with its files; no file is read."""
    if not folder.is_dir():
        raise SourceError(
            f"no folder {folder}; expected the published files of {source.name}. Get them with `taut fetch`."
        )
    found = []
    for name, place in source.clusters(folder).items():
        if not SAFE_CLUSTER.fullmatch(name):
            raise SourceError(
                f"a folder or file of the cluster {name[:80]!r}; expected letters, digits and . _ -. Rename it."
            )
        tables = [table.of(name) for table in source.tables]
        files = {table.name: find(table, place) for table in tables}
        for table in tables:
            if table.required and files[table.name] is None:
                raise SourceError(f"no {table.name} table in {place}; expected {expected_names(table)}")
        found.append(Cluster(name=name, files=tuple(f for f in files.values() if f)))
    if not found:
        required = " and ".join(expected_names(t) for t in source.tables if t.required)
        above = folder.absolute().parent
        if above / folder.name in source.clusters(above).values():
            raise SourceError(f"{folder} is one cluster of {source.name}; expected the folder above: --from {above}")
        wanted = required if CLUSTER in required else f"folders with {required}"
        raise SourceError(f"no cluster of {source.name} in {folder}; expected {wanted}")
    return found


def published_tables(source: Source, cluster: Cluster, folder: Path, stage: Path) -> list[Published]:
    """Unpack a cluster's files below `stage`; return its tables, those without a file too."""
    plain = unpack(cluster.files, stage)
    files = {f.table.name: f.path.relative_to(folder).as_posix() for f in cluster.files}
    published = [Published(table=t, file=files.get(t.name), plain=plain.get(t.name)) for t in source.tables]
    for one in published:
        if one.table.required and one.plain is None:
            raise SourceError(f"{one.file} lacks the {one.table.name} table; expected {expected_names(one.table)}")
    return published


SAFE_TRACE: Final = re.compile(r"[a-z0-9][a-z0-9_-]*")


def _is_synthetic(folder: str | Path) -> bool:
    return (Path(folder) / SYNTHETIC_MARK).exists()


def check_trace_name(name: str) -> None:
    """Raise BadUsage for a name that no trace may have.

    Models are registered as <kind>.<trace>.<type>, so a trace's name must not contain a dot.
    """
    if not SAFE_TRACE.fullmatch(name):
        raise BadUsage(f"the trace name {name[:80]!r}; expected lower-case letters, digits, _ and -, no - or _ first")


def trace_named(source: Source, from_dir: str | Path, as_name: str | None) -> str:
    """Return the trace's name in the lake: `as_name`, else the source's name, else `pai-synth` for synthetic files."""
    name = as_name if as_name is not None else (SYNTHETIC_NAME if _is_synthetic(from_dir) else source.name)
    check_trace_name(name)
    if _is_synthetic(from_dir) and name == source.name:
        raise BadUsage(f"the files in {from_dir} are synthetic and cannot be named {name}; use --as {SYNTHETIC_NAME}")
    return name


def prior_manifest(lake: Lake, trace: str, source: Source) -> Manifest | None:
    """Return the lake's manifest of the trace; None if the trace is new or its manifest unreadable."""
    before = lake.readable_manifests().get(trace)
    if before is None:
        return None
    if before.source != source.name:
        message = f"the lake's trace {trace!r} holds {before.source} data, not {source.name}"
        raise BadUsage(f"{message}; choose another name with --as")
    return before


def check_any_good(manifest: Manifest, source: Source) -> None:
    """Check that every required file with rows has a good row; else its format is wrong."""
    required = {table.name for table in source.tables if table.required}
    for account in manifest.accounts:
        if account.table in required and account.rows_in and not account.rows_good:
            rules = ", ".join(f"{rule} {rows}" for rule, rows in account.quarantined.items())
            raise SourceError(
                f"{account.file}: none of {account.rows_in} rows can be used ({rules}); expected the "
                f"{account.table} table of {source.name}; nothing was committed. --check shows the first of them."
            )


def check_share(manifest: Manifest, strict_share: float | None) -> None:
    """Check that each file's share of quarantined rows (0..1) is at most `strict_share`; None allows any share."""
    for account in manifest.accounts:
        share = account.rows_quarantined / max(1, account.rows_in)
        if strict_share is not None and share > strict_share:
            worst = ", ".join(f"{rule} {rows}" for rule, rows in account.quarantined.items())
            message = f"{account.file}: {share:.2%} of {account.rows_in} rows quarantined ({worst})"
            raise SourceError(f"{message}; at most {strict_share:.2%} allowed by --strict, so nothing was committed")
