"""Put files into the lake: name a table file by its content, commit a trace by replacing its manifest, and sweep.

The caller writes to the lake (`Lake.writing`).
"""

from pathlib import Path

from pipelines.errors import LakeError
from pipelines.lake.lake import Lake
from pipelines.lake.manifest import Manifest, Output, fingerprint


def place(lake: Lake, staged: Path, table: str, trace: str, cluster: str, rows: int) -> Output:
    """Move a table file from staging to its final name, derived from its content; return its manifest entry."""
    size, digest = fingerprint(staged)
    path = f"{table}/trace={trace}/cluster={cluster}/{digest[:16]}.parquet"
    lake.storage.place(staged, path)
    return Output(table=table, cluster=cluster, path=path, rows=rows, bytes=size)


def commit(lake: Lake, manifest: Manifest) -> None:
    """Replace the trace's manifest, and where the tables are local, rebuild the views and sweep."""
    if not intact(lake, manifest):
        raise LakeError(f"files of {manifest.trace} in {lake.where} vanished before the commit; run the command again")
    lake.storage.commit(manifest.trace, manifest.to_json())
    if lake.local:
        lake.refresh_views()
        sweep(lake, manifest.trace)


def intact(lake: Lake, manifest: Manifest) -> bool:
    """Return whether every file that the manifest names exists with its recorded size."""
    return lake.storage.intact(manifest.outputs)


def sweep(lake: Lake, trace: str) -> None:
    """Delete files that no manifest names: those of interrupted ingests, and tables that a later ingest replaced.

    In an object store, only old files of this trace are deleted; see `pipelines.lake.bucket`.
    """
    manifests = lake.readable_manifests()
    named = {output.path for manifest in manifests.values() for output in manifest.outputs}
    lake.storage.sweep(trace, named, [each for each in lake.traces() if each not in manifests])
