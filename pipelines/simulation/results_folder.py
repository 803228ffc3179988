"""Folders for results, checked before the work that fills them, so that hours of work are not lost to a bad name.

What is written there is the writers' matter. Called by the commands that take `--out`.
"""

import os
from pathlib import Path

from pipelines.errors import BadUsage


def fresh_folder(folder: Path) -> Path:
    """Return the folder, which has to be new or empty, and one that can be written.

    Raises
    ------
    BadUsage
        If it is a file, or holds anything, or nothing can be written there.
    """
    if any(open_folder(folder).glob("*")):
        raise BadUsage(f"--out {folder}: found it not empty, expected a new or empty folder; name another")
    return folder


def open_folder(folder: Path) -> Path:
    """Return the folder, which can be written: made to see that, and taken away again where it was not there.

    Raises
    ------
    BadUsage
        If it is a file, or nothing can be written there.
    """
    made: list[Path] = []
    try:
        made = [each for each in (folder, *folder.parents) if not each.exists()]
        folder.mkdir(parents=True, exist_ok=True)
        found = "" if os.access(folder, os.W_OK | os.X_OK) else "found it read-only"
    except (OSError, ValueError) as error:  # a name with a zero byte is a ValueError
        # Who asks to make a folder where a file is, is told of the file.
        is_file = isinstance(error, FileExistsError | NotADirectoryError)
        found = "found a file there" if is_file else (getattr(error, "strerror", None) or str(error)).lower()
    finally:
        for each in made:
            if each.is_dir():
                each.rmdir()
    if found:
        raise BadUsage(f"--out {folder}: {found}, expected a folder that can be written; name another")
    return folder
