"""Ingest one trace into the lake atomically; ingesting the same files again leaves the lake unchanged.

The contents of the files are declared in `pipelines.lake.sources` or in a mapping file; `pipelines.lake.staging` loads
the rows and writes the tables.
Called by `taut ingest`, the demo and the tests.

Notes
-----
Tables are written to a staging folder, then moved to names derived from their content. The ingest commits by renaming
the trace's new manifest: before that, readers see the old tables; afterwards, the new ones. Files that an interrupted
ingest leaves behind are removed by the next ingest.
"""

from collections.abc import Callable, Iterator
from concurrent.futures import Executor, ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final

import duckdb

from pipelines.errors import BadUsage, LakeError, SourceError
from pipelines.lake.commits import commit, intact, place, sweep
from pipelines.lake.connections import MEMORY_MB
from pipelines.lake.inputs import (
    Cluster,
    check_any_good,
    check_share,
    clusters_in,
    prior_manifest,
    published_tables,
    source_named,
    trace_named,
)
from pipelines.lake.lake import Lake
from pipelines.lake.manifest import Account, Input, Manifest, Output, Signatures, chosen
from pipelines.lake.sources.archive import Published
from pipelines.lake.sources.source import Source
from pipelines.lake.staging import load, parts, remarks, select_of, write
from pipelines.lake.views import QUARANTINE

__all__ = ["ingest"]

READERS: Final = 2
"""Number of threads that compute the SHA-256 digests of input files."""

MEMORY_LEAST_MB: Final = 160
BYTES_PER_MEMORY_BYTE: Final = 2
"""Bytes of input for each byte of DuckDB's memory limit. A lower limit makes DuckDB write to disk often; a higher one
hardly makes it faster."""


Progress = Callable[[str, int, int], None]
"""Receives what is being done, and how many bytes of the cluster's files are read, of how many."""


@dataclass(frozen=True, slots=True, kw_only=True)
class IngestReport:
    """The result of an ingest: the trace's manifest, and whether anything was written."""

    manifest: Manifest
    changed: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class _Built:
    """The result of loading one cluster: row counts per table, written files, and warnings."""

    accounts: list[Account]
    outputs: list[Output]
    warnings: list[str]


def ingest(
    source: str | Source,
    from_dir: str | Path,
    lake: str | Path,
    as_name: str | None = None,
    strict_share: float | None = None,
    progress: Progress | None = None,
) -> IngestReport:
    """Ingest a published trace from a folder; the same files again change nothing.

    Parameters
    ----------
    source
        A name in `SOURCES`, or the `Source` itself.
    as_name
        The trace's name in the lake; by default the name of the source.
    strict_share
        The largest share (0..1) of any file's rows that may go to quarantine; None allows all.
    progress
        Function called at each step, see `Progress`.

    Raises
    ------
    BadUsage
        If the source is unknown, or the name or the share is not valid.
    SourceError
        If a required file is absent, a file is damaged or not in its format, or `strict_share` is exceeded.
    LakeError
        If another ingest is writing to the lake.
    """
    declared = source if isinstance(source, Source) else source_named(source)
    trace = trace_named(declared, from_dir, as_name)
    if strict_share is not None and not 0 <= strict_share <= 1:
        raise BadUsage(f"a quarantine share of {strict_share}; expected 0 to 1")
    try:
        return _ingest(
            declared, trace, Path(from_dir).absolute(), Lake(lake), strict_share, progress or (lambda *_: None)
        )
    except (OSError, duckdb.Error) as error:
        raise LakeError(
            f"the ingest into {lake} broke off ({error}); nothing was committed, it can be repeated"
        ) from error


def _ingest(
    source: Source, trace: str, folder: Path, held: Lake, strict_share: float | None, say: Progress
) -> IngestReport:
    clusters = clusters_in(source, folder)
    with held.writing(), ThreadPoolExecutor(READERS) as readers:
        sweep(held)
        say(f"{trace}: reading {folder}", 0, 0)
        seen = Signatures.read(held.manifest_folder / f"{trace}.seen")
        paths = _paths(clusters)
        inputs = _inputs(paths, folder, seen, readers)
        before = prior_manifest(held, trace, source)
        # If the lake does not hold the trace yet, the digests are computed while the rows are loaded.
        if before and before.same_ingest(source.name, inputs() + source.declared, source.zone) and intact(held, before):
            check_share(before, strict_share)
            held.refresh_views()
            seen.keep()
            return IngestReport(manifest=before, changed=False)
        try:
            manifest = _build(held, source, trace, folder, clusters, inputs, say)
            check_any_good(manifest, source)
            check_share(manifest, strict_share)
            if not seen.still_hold(folder) or _paths(clusters) != paths:
                raise SourceError(
                    f"files in {folder} changed while they were read; nothing was committed. Ingest again."
                )
        except BaseException:  # also an interrupt, which DuckDB raises as RuntimeError
            sweep(held)
            raise
        commit(held, manifest)
        seen.keep()
    return IngestReport(manifest=manifest, changed=True)


def _paths(clusters: list[Cluster]) -> list[Path]:
    """Return the files that hold rows, and the write-ahead logs next to database files."""
    found = [file for cluster in clusters for file in cluster.files]
    logs = [file.path.with_name(file.path.name + end) for file in found for end in file.table.logs]
    return sorted({file.path for file in found}.union(log for log in logs if log.exists()))


def _inputs(paths: list[Path], folder: Path, seen: Signatures, readers: Executor) -> Callable[[], tuple[Input, ...]]:
    """Start computing the files' digests in `readers`; return a function that waits for them and returns the inputs."""
    read = [readers.submit(seen.input_of, path.relative_to(folder).as_posix(), path) for path in paths]
    return lambda: tuple(one.result() for one in read)


def _build(
    lake: Lake,
    source: Source,
    trace: str,
    folder: Path,
    clusters: list[Cluster],
    inputs: Callable[[], tuple[Input, ...]],
    say: Progress,
) -> Manifest:
    accounts: list[Account] = []
    outputs: list[Output] = []
    warnings: list[str] = []
    for cluster in clusters:
        stage = lake.staging_folder / cluster.name
        stage.mkdir(parents=True)
        published, absent = published_tables(source, cluster, folder, stage)
        warnings += [f"{cluster.name}: no {name} table: its columns are empty or null" for name in absent]
        try:
            built = _built(lake, source, trace, cluster.name, published, stage, memory_mb(published), say)
        except duckdb.OutOfMemoryException:
            # The limit estimated from file sizes was too low; repeat with the maximum.
            built = _built(lake, source, trace, cluster.name, published, stage, MEMORY_MB, say)
        accounts += built.accounts
        outputs += built.outputs
        warnings += built.warnings
    return Manifest(
        trace=trace,
        source=source.name,
        inputs=inputs() + source.declared,
        accounts=tuple(accounts),
        outputs=tuple(outputs),
        warnings=tuple(warnings),
        zone=source.zone,
        representative=chosen(source.representative, (cluster.name for cluster in clusters)),
    )


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
    say: Progress,
) -> _Built:
    """Load a cluster's files and write its tables; readers do not see the tables until the commit."""
    outputs, read_bytes = [], sum(_size(one) for one in published)
    with TemporaryDirectory(dir=stage) as scratch, lake.workbench(Path(scratch), memory) as work:
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
    return _Built(accounts=accounts, outputs=outputs, warnings=warnings)
