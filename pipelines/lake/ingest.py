"""Ingest: one trace into the lake, atomically and repeatably.

What the files hold is declared in `pipelines.lake.sources` or a mapping, and executed by `pipelines.lake.staging`.
Called by `taut ingest`, the demo and the tests.

Notes
-----
Tables are written to a staging folder and moved to names made of their content; renaming the trace's manifest is the
commit. Before it readers see the old tables, after it the new ones; what a killed ingest left is swept by the next.
"""

import os
import re
from collections.abc import Callable
from concurrent.futures import Executor, ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final

import duckdb

from pipelines.errors import BadUsage, LakeError, SourceError
from pipelines.lake.connections import MEMORY_MB
from pipelines.lake.lake import QUARANTINE, Lake
from pipelines.lake.manifest import Account, Input, Manifest, Output, chosen
from pipelines.lake.shortcuts import select_of
from pipelines.lake.signatures import Signatures
from pipelines.lake.source_files import Cluster, clusters_in, published_tables, source_named
from pipelines.lake.sources.archive import fingerprint
from pipelines.lake.sources.source import Source
from pipelines.lake.staging import Published, load, parts, remarks, write
from pipelines.synth.published import SYNTHETIC_MARK, SYNTHETIC_NAME

READERS: Final = 2
"""Files that are read for their digests at a time."""

MEMORY_LEAST_MB: Final = 160
BYTES_PER_MEMORY_BYTE: Final = 2
"""Memory by the size of the input: with less it would spill much, and by more it gains little."""

SAFE_TRACE: Final = re.compile(r"[a-z0-9][a-z0-9_-]*")

Progress = Callable[[str], None]


@dataclass(frozen=True, slots=True, kw_only=True)
class IngestReport:
    """What an ingest did: the trace's manifest, and whether anything was written."""

    manifest: Manifest
    changed: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class _Built:
    """What became of one cluster's files."""

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
        A name in `SOURCES`, or a declaration.
    as_name
        The trace's name in the lake; by default the source's.
    strict_share
        The largest share (0..1) of any file's rows that may go to quarantine; None allows all.
    progress
        Called with one line of talk per step.

    Raises
    ------
    BadUsage
        If the source is unknown, or the name or the share cannot be meant.
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
            declared, trace, Path(from_dir).absolute(), Lake(lake), strict_share, progress or (lambda _: None)
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
        held.sweep()
        say(f"{trace}: reading {folder}")
        seen = Signatures.read(held.manifest_folder / f"{trace}.seen")
        paths = _paths(clusters)
        inputs = _inputs(paths, folder, seen, readers)
        before = prior_manifest(held, trace, source)
        # Without a manifest to compare with, the files' digests are made while their rows are loaded.
        if before and before.same_ingest(source.name, inputs() + source.declared) and held.intact(before):
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
        except (SourceError, LakeError, OSError, duckdb.Error):
            held.sweep()
            raise
        _commit(held, manifest)
        seen.keep()
    return IngestReport(manifest=manifest, changed=True)


def _is_synthetic(folder: str | Path) -> bool:
    return (Path(folder) / SYNTHETIC_MARK).exists()


def trace_named(source: Source, from_dir: str | Path, as_name: str | None) -> str:
    """Return what the trace is called in the lake: as asked, else as its format; synthetic ones never as real ones.

    Raises
    ------
    BadUsage
        If the name cannot be one.
    """
    name = as_name if as_name is not None else (SYNTHETIC_NAME if _is_synthetic(from_dir) else source.name)
    if not SAFE_TRACE.fullmatch(name):
        # Models are registered as <kind>.<trace>.<type>: a dot would split the name.
        raise BadUsage(f"the trace name {name[:80]!r}; expected lower-case letters, digits, _ and -, no - or _ first")
    if _is_synthetic(from_dir) and name == source.name:
        raise BadUsage(f"{from_dir} is synthetic and must not be called {name}; use --as {SYNTHETIC_NAME}")
    return name


def _paths(clusters: list[Cluster]) -> list[Path]:
    """Return the files that rows come from, with the logs of databases that stand beside them."""
    found = [file for cluster in clusters for file in cluster.files]
    logs = [file.path.with_name(file.path.name + end) for file in found for end in file.table.logs]
    return sorted({file.path for file in found}.union(log for log in logs if log.exists()))


def _inputs(paths: list[Path], folder: Path, seen: Signatures, readers: Executor) -> Callable[[], tuple[Input, ...]]:
    """Have the files read for their digests; return what waits for them."""
    read = [readers.submit(seen.input_of, path.relative_to(folder).as_posix(), path) for path in paths]
    return lambda: tuple(one.result() for one in read)


def prior_manifest(lake: Lake, trace: str, source: Source) -> Manifest | None:
    """Return the manifest of what the trace holds, none if it is new.

    Raises
    ------
    BadUsage
        If it holds what another source read.
    """
    before = lake.readable_manifests().get(trace)
    if before is None:
        return None
    if before.source != source.name:
        message = f"the lake's trace {trace!r} holds {before.source} data, not {source.name}"
        raise BadUsage(f"{message}; choose another name with --as")
    return before


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
        say(f"{trace}: loading {cluster.name}")
        stage = lake.staging_folder / cluster.name
        stage.mkdir(parents=True)
        published, absent = published_tables(source, cluster, folder, stage)
        warnings += [f"{cluster.name}: no {name} table: what it feeds is empty or null" for name in absent]
        try:
            built = _built(lake, source, trace, cluster.name, published, stage, memory_mb(published), say)
        except duckdb.OutOfMemoryException:
            # Sizes tell what most inputs need; this one needs more.
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
        representative=chosen(source.representative, (cluster.name for cluster in clusters)),
    )


def memory_mb(published: list[Published]) -> int:
    """Return what memory DuckDB is given for a cluster's plain files; a JSON array takes large buffers."""
    there = [(one.table, one.plain.stat().st_size) for one in published if one.plain is not None]
    if any(table.json_array for table, _ in there):
        return MEMORY_MB
    wanted = sum(size for _, size in there) // BYTES_PER_MEMORY_BYTE // 1_000_000
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
    """Load a cluster's files, and write its tables to where no reader looks yet."""
    outputs = []
    with TemporaryDirectory(dir=stage) as scratch, lake.workbench(Path(scratch), memory) as work:
        accounts = load(work, source, cluster, published)
        warnings = [f"{cluster}: {text}" for text in remarks(work, source)]
        selects = {output: select_of(work, source, output) for output in source.outputs}
        selects[QUARANTINE] = f"SELECT * FROM {QUARANTINE}"
        for table, select in selects.items():
            say(f"{trace}: writing {table} of {cluster}")
            for part in parts(work, source, table):
                target = stage / f"{table}.parquet"
                rows = write(work, select, part, table, trace, cluster, target)
                if rows:
                    outputs.append(_place(lake, target, table, trace, cluster, rows))
    return _Built(accounts=accounts, outputs=outputs, warnings=warnings)


def _place(lake: Lake, staged: Path, table: str, trace: str, cluster: str, rows: int) -> Output:
    """Move a staged file to the name its content gives it; nothing reads it before the manifest names it."""
    size, digest = fingerprint(staged)
    place = lake.path / table / f"trace={trace}" / f"cluster={cluster}" / f"{digest[:16]}.parquet"
    place.parent.mkdir(parents=True, exist_ok=True)
    _flush(staged)
    staged.replace(place)
    path = place.relative_to(lake.path).as_posix()
    return Output(table=table, cluster=cluster, path=path, rows=rows, bytes=size)


def check_any_good(manifest: Manifest, source: Source) -> None:
    """Refuse a required file of which no row is good: it is of another format, and would empty the trace.

    Raises
    ------
    SourceError
        If there is one.
    """
    required = {table.name for table in source.tables if table.required}
    for account in manifest.accounts:
        if account.table in required and account.rows_in and not account.rows_good:
            rules = ", ".join(f"{rule} {rows}" for rule, rows in account.quarantined.items())
            raise SourceError(
                f"{account.file}: none of {account.rows_in} rows can be used ({rules}); expected the "
                f"{account.table} table of {source.name}; nothing was committed. --check shows the first of them."
            )


def check_share(manifest: Manifest, strict_share: float | None) -> None:
    """Refuse a file of which a larger share than that went to quarantine.

    Raises
    ------
    SourceError
        If there is one.
    """
    for account in manifest.accounts:
        share = account.rows_quarantined / max(1, account.rows_in)
        if strict_share is not None and share > strict_share:
            worst = ", ".join(f"{rule} {rows}" for rule, rows in account.quarantined.items())
            message = f"{account.file}: {share:.2%} of {account.rows_in} rows quarantined ({worst})"
            raise SourceError(f"{message}; at most {strict_share:.2%} allowed by --strict, so nothing was committed")


def _commit(lake: Lake, manifest: Manifest) -> None:
    lake.manifest_folder.mkdir(exist_ok=True)
    final = lake.manifest_folder / f"{manifest.trace}.json"
    fresh = final.with_suffix(".tmp")
    fresh.write_text(manifest.to_json())
    _flush(fresh)
    fresh.replace(final)
    _flush(lake.manifest_folder)
    lake.refresh_views()
    lake.sweep()


def _flush(path: Path) -> None:
    """Have the file on the disk, not only in memory: a manifest must never outlive its tables."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
