"""The partial file of an incomplete download, locked by one process, and a file next to it with the server's ETag.

`download` receives the bytes.
"""

import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

from pipelines.errors import FetchError


class Unfit(FetchError):
    """Raised if the received bytes do not belong to the requested file; the partial file is emptied."""


@dataclass(slots=True, kw_only=True)
class Partial:
    """A partial file open for appending; its first `kept_bytes` bytes are from an earlier run."""

    path: Path
    body: BinaryIO
    kept_bytes: int

    @property
    def held_bytes(self) -> int:
        """Return the size of the partial file in bytes."""
        return self.body.tell()

    @property
    def etag(self) -> str | None:
        """Return the ETag of the received bytes; None if the server sent no strong ETag."""
        path = _etag_path(self.path)
        return path.read_text(encoding="ascii") if path.exists() else None

    def note_etag(self, etag: str | None) -> None:
        """Store the ETag if it is strong; weak ETags do not identify the exact bytes (RFC 9110, section 13.1.5)."""
        if etag is None or etag.startswith("W/") or not etag.isascii():
            _etag_path(self.path).unlink(missing_ok=True)
        else:
            _etag_path(self.path).write_text(etag, encoding="ascii")

    def start_over(self) -> None:
        """Delete the received bytes and their ETag."""
        self.body.seek(0)
        self.body.truncate()
        self.kept_bytes = 0
        self.note_etag(None)


@contextmanager
def open_alone(path: Path) -> Iterator[Partial]:
    """Open and lock a partial file; on exit, delete it if it is empty or `Unfit` was raised."""
    with path.open("ab") as body:
        try:
            fcntl.flock(body, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            raise FetchError(f"another taut is fetching {path}: wait for it, or choose another folder") from error
        if not _is_at(path, body):
            raise FetchError(f"another taut has just finished with {path}: run the command again")
        partial = Partial(path=path, body=body, kept_bytes=body.tell())
        try:
            yield partial
        except Unfit:
            partial.start_over()
            raise
        finally:
            body.flush()
            _tidy(path, body)


def _tidy(path: Path, body: BinaryIO) -> None:
    """Delete the ETag if the file is complete (renamed); delete file and ETag if the file is empty."""
    if not _is_at(path, body):
        _etag_path(path).unlink(missing_ok=True)
    elif path.stat().st_size == 0:
        _etag_path(path).unlink(missing_ok=True)
        path.unlink()


def _is_at(path: Path, body: BinaryIO) -> bool:
    """Return whether `path` is still the open file; False after the file was completed and renamed."""
    return path.exists() and os.path.samestat(path.stat(), os.fstat(body.fileno()))


def _etag_path(path: Path) -> Path:
    return path.with_name(f"{path.name}.etag")
