"""What the file system says of a published file, and the digest it had then: a file that looks untouched is not read.

Deciding what an ingest does with unchanged files is `pipelines.lake.ingest`'s. Nothing here is part of the manifest:
what is lost is made again by reading the files. Called by `pipelines.lake.ingest`.
"""

import json
from contextlib import suppress
from pathlib import Path
from typing import Final, Self

from pipelines.lake.manifest import Input
from pipelines.lake.sources.archive import fingerprint

SQLITE_LOG: Final = "-wal"
Mark = tuple[int, int, int, int, int]


def mark_of(path: Path) -> Mark:
    """Return a file's device, inode, size and times of change; ctime cannot be set back by its owner.

    Of SQLite's log the ctime is left out: reading as root sets its owner anew.
    """
    state = path.stat()
    changed = 0 if path.name.endswith(SQLITE_LOG) else state.st_ctime_ns
    return (state.st_dev, state.st_ino, state.st_size, state.st_mtime_ns, changed)


class Signatures:
    """The marks and digests of a trace's files, kept in a file beside its manifest."""

    def __init__(self, path: Path, held: dict[str, tuple[Mark, str]]) -> None:
        self.path = path
        self._held = held
        self._found: dict[str, tuple[Mark, str]] = {}

    @classmethod
    def read(cls, path: Path) -> Self:
        """Read what an earlier ingest wrote; what is absent or torn is nothing."""
        held: dict[str, tuple[Mark, str]] = {}
        with suppress(OSError, ValueError, TypeError, AttributeError):
            for file, (mark, digest) in json.loads(path.read_text()).items():
                device, inode, size, modified, changed = map(int, mark)
                held[file] = ((device, inode, size, modified, changed), str(digest))
        return cls(path, held)

    def input_of(self, file: str, path: Path) -> Input:
        """Return the file as an input of an ingest; it is read only if it is not as it was."""
        mark = mark_of(path)
        held = self._held.get(file)
        size, digest = (mark[2], held[1]) if held and held[0] == mark else fingerprint(path)
        self._found[file] = (mark, digest)
        return Input(file=file, bytes=size, sha256=digest)

    def still_hold(self, folder: Path) -> bool:
        """Tell whether no file that was asked for changed since."""
        with suppress(OSError):
            return all(mark_of(folder / file) == mark for file, (mark, _) in self._found.items())
        return False

    def keep(self) -> None:
        """Write what was found, unless that is what is written already."""
        if self._found != self._held:
            self.path.write_text(json.dumps(self._found, indent=2) + "\n")
