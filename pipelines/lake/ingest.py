"""Ingest one trace into the lake atomically; ingesting the same files again leaves the lake unchanged.

`staging` loads the rows and writes the tables, cluster by cluster, to names derived from their content. The ingest
commits by replacing the trace's manifest in one step: before that, readers see the old tables; afterwards, the new
ones. A later ingest removes what an interrupted one leaves behind. A dry run is an ingest into a temporary lake.
`add_rows` adds measured rows to a trace without reading its files again.
"""

import re
from collections.abc import Callable, Mapping
from concurrent.futures import Executor, ThreadPoolExecutor
from dataclasses import dataclass, replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Final

import duckdb

from features.canonical import CANONICAL
from pipelines.engine.engine import Engine, Local
from pipelines.errors import BadUsage, LakeError, PipelineError, SourceError
from pipelines.lake.lake import Lake
from pipelines.lake.manifest import Input, Manifest, Output, Signatures, chosen
from pipelines.lake.reading import Problem
from pipelines.lake.sources import SOURCES
from pipelines.lake.sources.archive import Cluster, clusters_in
from pipelines.lake.sources.source import Source
from pipelines.lake.staging import Loading, Progress, load_cluster
from pipelines.lake.views import COLUMNS
from pipelines.synth.published import SYNTHETIC_MARK, SYNTHETIC_NAME

if TYPE_CHECKING:
    import polars as pl

__all__ = ["add_rows", "check", "check_trace_name", "ingest"]

READERS: Final = 2
"""Number of threads that compute the SHA-256 digests of input files."""
SAFE_TRACE: Final = re.compile(r"[a-z0-9][a-z0-9_-]*")


@dataclass(frozen=True, slots=True, kw_only=True)
class IngestReport:
    """The result of an ingest: the trace's manifest, and whether anything was written."""

    manifest: Manifest
    changed: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckReport:
    """The result of a dry run: problems, and the reason why an ingest would fail (then `manifest` is None)."""

    trace: str
    problems: tuple[Problem, ...]
    manifest: Manifest | None = None
    failure: str | None = None


def ingest(
    source: str | Source,
    from_dir: str | Path,
    lake: str | Path,
    as_name: str | None = None,
    strict_share: float | None = None,
    progress: Progress | None = None,
    engine: Engine | None = None,
    threads: int | None = None,
) -> IngestReport:
    """Ingest a published trace from a folder; the same files again change nothing.

    `source` is a name in `SOURCES`, or the `Source` itself; `as_name` the trace's name in the lake, by default that of
    the source. `strict_share` is the largest share (0..1) of any file's rows that may go to quarantine; None allows
    all. The clusters are loaded by `engine`, each in a process with at most `threads` threads, which must see both
    folders; then `progress` is called only after each cluster.
    """
    loading = replace(_loading(source, from_dir, lake, as_name), threads=threads, say=progress or (lambda *_: None))
    if strict_share is not None and not 0 <= strict_share <= 1:
        raise BadUsage(f"a quarantine share of {strict_share}; expected 0 to 1")
    try:
        return _ingest(loading, strict_share, engine or Local())
    except (OSError, duckdb.Error) as error:
        raise LakeError(
            f"the ingest into {lake} broke off ({error}); nothing was committed, it can be repeated"
        ) from error


def check(
    source: str | Source,
    from_dir: str | Path,
    lake: str | Path,
    as_name: str | None = None,
    strict_share: float | None = None,
) -> CheckReport:
    """Report what an ingest of these files into this lake would do, without changing the lake."""
    loading = _loading(source, from_dir, lake, as_name)
    _prior_manifest(Lake(lake), loading.trace, loading.source)
    problems: list[Problem] = []
    manifest, failure = None, None
    with TemporaryDirectory(prefix="taut-check-") as scratch:
        dry = replace(loading, lake=Path(scratch, "lake"), problems=problems)
        try:
            manifest = _ingest(dry, strict_share, Local()).manifest
        except PipelineError as error:
            failure = str(error)
        except (OSError, duckdb.Error) as error:
            failure = f"the files cannot be read: {str(error).partition(chr(10))[0][:300]}"
    return CheckReport(trace=loading.trace, problems=tuple(problems), manifest=manifest, failure=failure)


def _ingest(loading: Loading, strict_share: float | None, engine: Engine) -> IngestReport:
    source, trace, folder, held = loading.source, loading.trace, loading.folder, Lake(loading.lake)
    clusters = clusters_in(source, folder)
    with held.storage.writing(), ThreadPoolExecutor(READERS) as readers:
        held.sweep()
        if loading.say:
            loading.say(f"{trace}: reading {folder}", 0, 0)
        seen = Signatures(held.manifest_folder / f"{trace}.seen")
        paths = _paths(clusters)
        inputs = _inputs(paths, folder, seen, readers)
        before = _prior_manifest(held, trace, source)
        # If the lake does not hold the trace yet, the digests are computed while the rows are loaded.
        if (
            before
            and before.same_ingest(source.name, inputs() + source.declared, source.zone)
            and held.storage.intact(before.outputs)
        ):
            _check_shares(before, source, strict_share)
            held.refresh_views()
            seen.keep()
            return IngestReport(manifest=before, changed=False)
        try:
            manifest = _built(loading, clusters, inputs, engine)
            _check_shares(manifest, source, strict_share)
            if not seen.still_hold(folder) or _paths(clusters) != paths:
                raise SourceError(
                    f"files in {folder} changed while they were read; nothing was committed. Ingest again."
                )
        except BaseException:  # also an interrupt, which DuckDB raises as RuntimeError
            held.sweep()
            raise
        held.commit(manifest)
        seen.keep()
    return IngestReport(manifest=manifest, changed=True)


def _paths(clusters: list[Cluster]) -> list[Path]:
    """Return the files that hold rows."""
    return sorted({file.path for cluster in clusters for file in cluster.files})


def _inputs(paths: list[Path], folder: Path, seen: Signatures, readers: Executor) -> Callable[[], tuple[Input, ...]]:
    """Start computing the files' digests in `readers`; return a function that waits for them and returns the inputs."""
    read = [readers.submit(seen.input_of, path.relative_to(folder).as_posix(), path) for path in paths]
    return lambda: tuple(one.result() for one in read)


def _built(
    loading: Loading, clusters: list[Cluster], inputs: Callable[[], tuple[Input, ...]], engine: Engine
) -> Manifest:
    """Load the clusters on the engine; other processes report nothing, so there each is reported when loaded."""
    source, local = loading.source, isinstance(engine, Local)
    built = []
    for cluster, one in zip(
        clusters,
        engine.run(load_cluster, loading if local else replace(loading, say=None), clusters),
        strict=True,
    ):
        if not local and loading.say:
            loading.say(f"loaded {cluster.name}", 0, 0)
        built.append(one)
    return Manifest(
        trace=loading.trace,
        source=source.name,
        inputs=inputs() + source.declared,
        accounts=tuple(account for one in built for account in one.accounts),
        outputs=tuple(output for one in built for output in one.outputs),
        warnings=tuple(warning for one in built for warning in one.warnings),
        zone=source.zone,
        representative=chosen(source.representative, (cluster.name for cluster in clusters)),
    )


def check_trace_name(name: str) -> None:
    """Raise BadUsage for a name that no trace may have.

    Models are registered as <kind>.<trace>.<type>, so a trace's name must not contain a dot.
    """
    if not SAFE_TRACE.fullmatch(name):
        raise BadUsage(f"the trace name {name[:80]!r}; expected lower-case letters, digits, _ and -, no - or _ first")


def _loading(source: str | Source, from_dir: str | Path, lake: str | Path, as_name: str | None) -> Loading:
    """Return the files to load; the trace's name is `as_name`, or `pai-synth` for synthetic files, or the source's."""
    if isinstance(source, str):
        if source not in SOURCES:
            raise BadUsage(f"no source {source!r}; expected one of {', '.join(SOURCES)}")
        source = SOURCES[source]
    synthetic = (Path(from_dir) / SYNTHETIC_MARK).exists()
    name = as_name if as_name is not None else (SYNTHETIC_NAME if synthetic else source.name)
    check_trace_name(name)
    if synthetic and name == source.name:
        raise BadUsage(f"the files in {from_dir} are synthetic and cannot be named {name}; use --as {SYNTHETIC_NAME}")
    return Loading(lake=Lake(lake).path, source=source, trace=name, folder=Path(from_dir).absolute())


def _prior_manifest(lake: Lake, trace: str, source: Source) -> Manifest | None:
    """Return the lake's manifest of the trace; None if the trace is new or its manifest unreadable."""
    before = lake.readable_manifests().get(trace)
    if before is not None and before.source != source.name:
        message = f"the lake's trace {trace!r} holds {before.source} data, not {source.name}"
        raise BadUsage(f"{message}; choose another name with --as")
    return before


def _check_shares(manifest: Manifest, source: Source, strict_share: float | None) -> None:
    """Check that required files with rows have a good row, and that each file's quarantined share is small enough."""
    required = {table.name for table in source.tables if table.required}
    for account in manifest.accounts:
        rules = ", ".join(f"{rule} {rows}" for rule, rows in account.quarantined.items())
        if account.table in required and account.rows_in and not account.rows_good:
            raise SourceError(
                f"{account.file}: none of {account.rows_in} rows can be used ({rules}); expected the "
                f"{account.table} table of {source.name}; nothing was committed. --check shows the first of them."
            )
    for account in manifest.accounts:
        rules = ", ".join(f"{rule} {rows}" for rule, rows in account.quarantined.items())
        share = account.rows_quarantined / max(1, account.rows_in)
        if strict_share is not None and share > strict_share:
            message = f"{account.file}: {share:.2%} of {account.rows_in} rows quarantined ({rules})"
            raise SourceError(f"{message}; at most {strict_share:.2%} allowed by --strict, so nothing was committed")


SHOWN: Final = 200


def add_rows(lake: Lake, trace: str, cluster: str, fresh: Mapping[str, "pl.DataFrame"]) -> Manifest:
    """Add rows to canonical tables of one cluster in one commit; return the trace's new manifest.

    A fresh row replaces the row with the same key; where it is null, the old value stays. The frames may leave out
    `trace`, `cluster` and columns that may be null. Adding the same rows again changes nothing.
    """
    import dataframely as dy
    import polars as pl

    with lake.storage.writing():
        manifest = lake.manifest(trace)
        outputs = [each for each in manifest.outputs if not (each.table in fresh and each.cluster == cluster)]
        try:
            with lake.storage.staged(cluster) as stage:
                for table, rows in fresh.items():
                    merged = _merged(lake, table, trace, cluster, rows)
                    if merged.height:
                        outputs.append(_written(lake, stage, table, trace, cluster, merged))
            grown = replace(manifest, outputs=tuple(outputs))
            lake.commit(grown)
        except (OSError, duckdb.Error, pl.exceptions.PolarsError, dy.exc.ValidationError) as error:
            lake.sweep()
            reason = " ".join(str(error).split())[:SHOWN]
            raise LakeError(f"rows were not added to {trace} in {lake.path} ({reason}); repeat the command") from error
    return grown


def _merged(lake: Lake, table: str, trace: str, cluster: str, rows: "pl.DataFrame") -> "pl.DataFrame":
    """Return the table's rows of a cluster with the fresh rows laid over them, checked and sorted by key."""
    import polars as pl

    from features.frames import frame_schema
    from features.tables import TABLES

    schema, key = frame_schema(COLUMNS[table]), CANONICAL[table].key
    placed = rows.with_columns(trace=pl.lit(trace), cluster=pl.lit(cluster))
    missing = [pl.lit(None, dtype=kind).alias(name) for name, kind in schema.items() if name not in placed.columns]
    fresh = placed.with_columns(missing).select(pl.col(name).cast(kind) for name, kind in schema.items())
    held = lake.table(table, trace, cluster).collect()
    merged = held.update(fresh, on=list(key), how="full", maintain_order=None).sort(key)
    return TABLES[table].validate(merged)


def _written(lake: Lake, stage: Path, table: str, trace: str, cluster: str, rows: "pl.DataFrame") -> Output:
    staged = stage / f"{table}.parquet"
    rows.write_parquet(staged, compression="zstd")
    return lake.place(staged, table, trace, cluster, rows.height)
