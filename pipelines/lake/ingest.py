"""Ingest one trace into the lake atomically; ingesting the same files again leaves the lake unchanged.

The contents of the files are declared in `pipelines.lake.sources` or in a mapping file; `cluster_loading` loads the
rows and writes the tables, cluster by cluster. A dry run is an ingest into a temporary lake.

Notes
-----
Tables are written to a staging folder, then moved to names derived from their content. The ingest commits by replacing
the trace's manifest in one step: before that, readers see the old tables; afterwards, the new ones. Files that an
interrupted ingest leaves behind are removed by a later ingest.
"""

from collections.abc import Callable
from concurrent.futures import Executor, ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final

import duckdb

from pipelines.engine.engine import Engine, Local
from pipelines.errors import BadUsage, LakeError, PipelineError, SourceError
from pipelines.lake.cluster_loading import Loading, Progress, load_cluster
from pipelines.lake.inputs import (
    Cluster,
    check_any_good,
    check_share,
    clusters_in,
    prior_manifest,
    source_named,
    trace_named,
)
from pipelines.lake.lake import Lake
from pipelines.lake.manifest import Account, Input, Manifest, Output, Signatures, chosen
from pipelines.lake.problems import Problem
from pipelines.lake.sources.source import Source

__all__ = ["check", "ingest"]

READERS: Final = 2
"""Number of threads that compute the SHA-256 digests of input files."""


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

    Parameters
    ----------
    source
        A name in `SOURCES`, or the `Source` itself.
    as_name
        The trace's name in the lake; by default the name of the source.
    strict_share
        The largest share (0..1) of any file's rows that may go to quarantine; None allows all.
    progress
        Function called at each step, see `Progress`; with an engine, only after each cluster.
    engine
        Loads the clusters, each in a process with at most `threads` threads. Its processes must see both folders.
    """
    declared = source if isinstance(source, Source) else source_named(source)
    trace = trace_named(declared, from_dir, as_name)
    if strict_share is not None and not 0 <= strict_share <= 1:
        raise BadUsage(f"a quarantine share of {strict_share}; expected 0 to 1")
    try:
        say = progress or (lambda *_: None)
        return _ingest(
            declared, trace, Path(from_dir).absolute(), Lake(lake), strict_share, engine or Local(), threads, say
        )
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
    """Report what an ingest of these files into this lake would do, without changing the lake.

    The parameters are those of `ingest`.
    """
    declared = source if isinstance(source, Source) else source_named(source)
    trace = trace_named(declared, from_dir, as_name)
    prior_manifest(Lake(lake), trace, declared)
    problems: list[Problem] = []
    manifest, failure = None, None
    with TemporaryDirectory(prefix="taut-check-") as scratch:
        held, folder = Lake(Path(scratch, "lake")), Path(from_dir).absolute()
        try:
            report = _ingest(declared, trace, folder, held, strict_share, Local(), None, lambda *_: None, problems)
            manifest = report.manifest
        except PipelineError as error:
            failure = str(error)
        except (OSError, duckdb.Error) as error:
            failure = f"the files cannot be read: {str(error).partition(chr(10))[0][:300]}"
    return CheckReport(trace=trace, problems=tuple(problems), manifest=manifest, failure=failure)


def _ingest(
    source: Source,
    trace: str,
    folder: Path,
    held: Lake,
    strict_share: float | None,
    engine: Engine,
    threads: int | None,
    say: Progress,
    problems: list[Problem] | None = None,
) -> IngestReport:
    clusters = clusters_in(source, folder)
    with held.writing(), ThreadPoolExecutor(READERS) as readers:
        held.sweep(trace)
        say(f"{trace}: reading {folder}", 0, 0)
        seen = Signatures(held.manifest_folder / f"{trace}.seen")
        paths = _paths(clusters)
        inputs = _inputs(paths, folder, seen, readers)
        before = prior_manifest(held, trace, source)
        # If the lake does not hold the trace yet, the digests are computed while the rows are loaded.
        if (
            before
            and before.same_ingest(source.name, inputs() + source.declared, source.zone)
            and held.storage.intact(before.outputs)
        ):
            check_share(before, strict_share)
            if held.local:
                held.refresh_views()
            seen.keep()
            return IngestReport(manifest=before, changed=False)
        try:
            loading = Loading(
                lake=held.where,
                source=source,
                trace=trace,
                folder=folder,
                threads=threads,
                say=say if isinstance(engine, Local) else None,
                problems=problems,
            )
            manifest = _build(loading, clusters, inputs, engine, say)
            check_any_good(manifest, source)
            check_share(manifest, strict_share)
            if not seen.still_hold(folder) or _paths(clusters) != paths:
                raise SourceError(
                    f"files in {folder} changed while they were read; nothing was committed. Ingest again."
                )
        except BaseException:  # also an interrupt, which DuckDB raises as RuntimeError
            if held.local:
                held.sweep(trace)
            raise
        held.commit(manifest)
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
    loading: Loading, clusters: list[Cluster], inputs: Callable[[], tuple[Input, ...]], engine: Engine, say: Progress
) -> Manifest:
    accounts: list[Account] = []
    outputs: list[Output] = []
    warnings: list[str] = []
    source = loading.source
    for cluster, built in zip(clusters, engine.run(load_cluster, loading, clusters), strict=True):
        if loading.say is None:
            say(f"loaded {cluster.name}", 0, 0)
        accounts += built.accounts
        outputs += built.outputs
        warnings += built.warnings
    return Manifest(
        trace=loading.trace,
        source=source.name,
        inputs=inputs() + source.declared,
        accounts=tuple(accounts),
        outputs=tuple(outputs),
        warnings=tuple(warnings),
        zone=source.zone,
        representative=chosen(source.representative, (cluster.name for cluster in clusters)),
    )
