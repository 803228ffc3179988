"""Put files into the lake: name a table file by its content, and commit a trace by renaming its manifest.

The caller holds the lock for writing. Called by `pipelines.lake.ingest` and `pipelines.lake.additions`.
"""

import os
from pathlib import Path

from pipelines.lake.lake import Lake
from pipelines.lake.manifest import Manifest, Output, fingerprint


def place(lake: Lake, staged: Path, table: str, trace: str, cluster: str, rows: int) -> Output:
    """Move a table file from staging to its final name, derived from its content; return its manifest entry."""
    size, digest = fingerprint(staged)
    place = lake.path / table / f"trace={trace}" / f"cluster={cluster}" / f"{digest[:16]}.parquet"
    place.parent.mkdir(parents=True, exist_ok=True)
    _flush(staged)
    staged.replace(place)
    path = place.relative_to(lake.path).as_posix()
    return Output(table=table, cluster=cluster, path=path, rows=rows, bytes=size)


def commit(lake: Lake, manifest: Manifest) -> None:
    """Rename the trace's new manifest into place, rebuild the views, and delete files that no manifest names."""
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
    """Flush a file to disk, so that after a crash no manifest names a table that was lost."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
