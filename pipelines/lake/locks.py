"""A lock between processes: a file that one process holds while it works; the kernel frees it if the process dies.

Called by the lake for ingests, and by the commands that train.
"""

import fcntl
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

__all__ = ["exclusive"]


@contextmanager
def exclusive(path: Path, refusal: Exception) -> Iterator[None]:
    """Hold the lock of a file, which is created if missing, while the block runs.

    Raises
    ------
    Exception
        Another process holds the lock: `refusal` is raised.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("w") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            raise refusal from error
        yield
