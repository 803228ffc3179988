"""The files of a lake's folder: staging, commits, sweeps; locks, and folders that end with them."""

import fcntl
import os
import shutil
import tempfile
from collections.abc import Collection, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, suppress
from pathlib import Path
from typing import Final
from uuid import uuid4

from pipelines.errors import LakeError
from pipelines.lake.manifest import Output
from pipelines.lake.views import COLUMNS

__all__ = ["exclusive"]

LOCK: Final = "lock"


class Folder:
    """The files of a lake; DuckDB and Polars read those that a manifest names."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def manifests(self) -> dict[str, str]:
        """Return the text of every manifest, by trace."""
        return {path.stem: path.read_text() for path in sorted(self._manifests.glob("*.json"))}

    def whole(self, outputs: Sequence[Output]) -> list[Path]:
        """Return the paths of table files; raise LakeError if one is missing, or its size differs."""
        return [_whole(self.folder / output.path, output.bytes) for output in outputs]

    @contextmanager
    def writing(self) -> Iterator[None]:
        """Lock the folder for writing; create it if it does not exist."""
        folder = self.folder
        if folder.exists() and not folder.is_dir():
            raise LakeError(f"{folder} is a file; expected the lake's folder")
        # An ingest deletes files that no manifest names; in a folder that is not a lake they could be the user's.
        ours = (folder / ".lock").exists() or self._manifests.is_dir()
        if folder.is_dir() and not ours and any(folder.iterdir()):
            raise LakeError(f"{folder} is not empty and no lake; expected a new or empty folder, or a lake")
        folder.mkdir(parents=True, exist_ok=True)
        with self.rebuilding():
            yield

    def rebuilding(self) -> AbstractContextManager[None]:
        """Hold the lock for writing, which also protects the views."""
        refusal = LakeError(f"another ingest is writing to {self.folder}; wait for it to end")
        return exclusive(self.folder / ".lock", refusal)

    @contextmanager
    def staged(self, name: str) -> Iterator[Path]:
        """Yield an empty folder in the lake, so that files move into place by renaming; `sweep` removes it."""
        folder = self.folder / "staging" / f"{name}-{uuid4().hex}"
        folder.mkdir(parents=True)
        yield folder

    def place(self, staged: Path, path: str) -> None:
        """Flush a staged file to disk, and rename it to `path`."""
        place = self.folder / path
        place.parent.mkdir(parents=True, exist_ok=True)
        _flush(staged)
        staged.replace(place)

    def commit(self, trace: str, text: str) -> None:
        """Rename the trace's new manifest into place: readers see the old one or the new one."""
        self._manifests.mkdir(exist_ok=True)
        final = self._manifests / f"{trace}.json"
        fresh = final.with_suffix(".tmp")
        fresh.write_text(text)
        _flush(fresh)
        fresh.replace(final)
        _flush(self._manifests)

    def intact(self, outputs: Sequence[Output]) -> bool:
        """Return whether every file exists with its recorded size."""
        paths = ((self.folder / output.path, output.bytes) for output in outputs)
        return all(path.is_file() and path.stat().st_size == size for path, size in paths)

    def sweep(self, named: Collection[str], unreadable: Collection[str]) -> None:
        """Delete the files of all traces that no manifest names: the lock guarantees that no other process writes."""
        shutil.rmtree(self.folder / "staging", ignore_errors=True)
        unknown = {f"trace={trace}" for trace in unreadable}
        for name in COLUMNS:
            folder = self.folder / name
            for path in folder.rglob("*.parquet"):
                relative = path.relative_to(self.folder)
                if relative.as_posix() not in named and not unknown & set(relative.parts):
                    path.unlink()
            for empty in sorted((p for p in folder.rglob("*") if p.is_dir()), reverse=True):
                with suppress(OSError):  # the folder is not empty
                    empty.rmdir()
            with suppress(OSError):
                folder.rmdir()
        for leftover in (*self._manifests.glob("*.tmp"), *self.folder.glob("taut.fresh*")):
            leftover.unlink()

    @property
    def _manifests(self) -> Path:
        return self.folder / "manifests"


def _whole(path: Path, expected: int) -> Path:
    size = path.stat().st_size if path.is_file() else None
    if size != expected:
        raise missing(path) if size is None else damaged(path, f"{size} of {expected} bytes")
    return path


def _flush(path: Path) -> None:
    """Flush a file to disk, so that after a crash no manifest names a table that was lost."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def missing(path: Path) -> LakeError:
    """Return the error for a file that the manifest names but that does not exist."""
    return LakeError(f"{path} is missing; expected every file that the manifest names. Ingest the trace again.")


def damaged(path: Path, reason: str) -> LakeError:
    """Return the error for a table file that is no longer as the ingest wrote it."""
    return LakeError(
        f"{path} is damaged ({reason}); expected the Parquet file of the ingest. Remove it, and ingest again."
    )


@contextmanager
def exclusive(path: Path, refusal: Exception) -> Iterator[None]:
    """Hold the lock of a file, which is created if missing, while the block runs."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("w") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            raise refusal from error
        yield


@contextmanager
def scratch(parent: Path, prefix: str) -> Iterator[Path]:
    """Yield an empty folder, and remove it at the end; first remove what killed processes left with this prefix.

    A process holds a lock on a file in its folder; the kernel frees the lock if the process dies.
    """
    for left in parent.glob(f"{prefix}*"):
        if _abandoned(left):
            shutil.rmtree(left, ignore_errors=True)
    with (
        tempfile.TemporaryDirectory(prefix=prefix, dir=parent, ignore_cleanup_errors=True) as folder,
        (Path(folder) / LOCK).open("w") as lock,
    ):
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield Path(folder)


def _abandoned(folder: Path) -> bool:
    try:
        with (folder / LOCK).open("r+") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return True
    except OSError:  # in use, of another user, or just being created
        return False
