"""A lock between processes, which the kernel frees if the process dies, and folders that do not outlive it."""

import fcntl
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

__all__ = ["exclusive"]

LOCK: Final = "lock"


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
    """Yield an empty folder and remove it at the end; first remove those of the same prefix of killed processes.

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
