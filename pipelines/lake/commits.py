"""Put files into the lake: name a table file by its content, commit a trace by renaming its manifest, and sweep.

The caller holds the lock for writing. Called by `pipelines.lake.ingest` and `pipelines.lake.additions`.
"""

import os
import shutil
from contextlib import suppress
from pathlib import Path

from pipelines.lake.lake import Lake
from pipelines.lake.manifest import Manifest, Output, fingerprint
from pipelines.lake.views import COLUMNS


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
    sweep(lake)


def intact(lake: Lake, manifest: Manifest) -> bool:
    """Return whether every file that the manifest names exists with its recorded size."""
    paths = ((lake.path / o.path, o.bytes) for o in manifest.outputs)
    return all(path.is_file() and path.stat().st_size == size for path, size in paths)


def sweep(lake: Lake) -> None:
    """Delete files that no manifest names: those of interrupted ingests, and tables that a later ingest replaced.

    Files of a trace whose manifest cannot be read are kept.
    """
    shutil.rmtree(lake.staging_folder, ignore_errors=True)
    manifests = lake.readable_manifests()
    named = {lake.path / o.path for m in manifests.values() for o in m.outputs}
    unknown = {f"trace={trace}" for trace in lake.traces() if trace not in manifests}
    for name in COLUMNS:
        folder = lake.path / name
        for path in folder.rglob("*.parquet"):
            if path not in named and not unknown & set(path.relative_to(folder).parts):
                path.unlink()
        for empty in sorted((p for p in folder.rglob("*") if p.is_dir()), reverse=True):
            with suppress(OSError):  # the folder is not empty
                empty.rmdir()
        with suppress(OSError):
            folder.rmdir()
    for leftover in (*lake.manifest_folder.glob("*.tmp"), *lake.path.glob("taut.fresh*")):
        leftover.unlink()


def _flush(path: Path) -> None:
    """Flush a file to disk, so that after a crash no manifest names a table that was lost."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
