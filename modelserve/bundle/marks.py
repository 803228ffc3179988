"""What the file system says of pointers and bundles, cheaply: whether any were written anew since the last look.

Nothing is opened here. Called by `modelserve.loading.models` once a second.
"""

import os
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

from modelserve.bundle.card import MODEL_NAME

Place = tuple[str, str]
"""A registered name and an alias."""

Mark = tuple[int, ...]
"""Times, size and number of files; it differs once they were written anew."""


def pointer_marks(folder: Path, aliases: Sequence[str]) -> dict[Place, Mark] | None:
    """Return every pointer of the folder and its mark; None where the folder cannot be listed."""
    marks = {}
    try:
        names = sorted(each for each in os.listdir(folder) if MODEL_NAME.fullmatch(each))  # noqa: PTH208  # once a second
    except OSError:
        return None
    for name in names:
        for alias in aliases:
            try:
                marks[name, alias] = _mark(os.stat(f"{folder}/{name}/{alias}.json"))  # noqa: PTH116  # once a second
            except (FileNotFoundError, NotADirectoryError):
                continue
            except OSError:
                marks[name, alias] = ()
    return marks


def files_mark(folder: Path) -> Mark:
    """Return the mark of a model's folder and of all that its versions hold."""
    marks: list[int] = []
    for place, folders, files in os.walk(folder):
        folders.sort()
        for each in sorted(files):
            with suppress(OSError):
                marks += _mark((Path(place) / each).lstat())
    return tuple(marks)


def _mark(found: os.stat_result) -> Mark:
    return found.st_mtime_ns, found.st_ctime_ns, found.st_size, found.st_ino
