"""The lines of a text file of any encoding, with their numbers; what is too long or no text is known as such.

Splitting lines into fields is the readers' of CSV and JSON lines beside it, which call this.
"""

from collections.abc import Iterator
from pathlib import Path
from typing import Final, NamedTuple, TextIO

from pipelines.lake.generic.records import MOST_RECORD_CHARACTERS, TOO_LONG, UNREADABLE

NO_CHARACTER: Final = "\ufffd"
"""What bytes that are no text are read as."""


class Line(NamedTuple):
    """A line as it stands, with its line end, its number from 1, and the rule that it breaks."""

    number: int
    text: str
    fault: str | None = None


def lines_of(path: Path, encoding: str) -> Iterator[Line]:
    """Yield the lines of a file; a mark of byte order is no part of the first."""
    with path.open(encoding="utf-8-sig" if encoding == "utf-8" else encoding, errors="replace", newline="") as stream:
        number = 1
        while text := stream.readline(MOST_RECORD_CHARACTERS):
            fault = None
            if len(text) == MOST_RECORD_CHARACTERS and text[-1] not in "\r\n":
                fault = TOO_LONG
                _skip_line(stream)
            elif "\0" in text or (not text.isascii() and not _is_text(text)):
                fault = UNREADABLE
            yield Line(number, text if fault is None else _cleaned(text), fault)
            number += 1


def _skip_line(stream: TextIO) -> None:
    while (rest := stream.readline(MOST_RECORD_CHARACTERS)) and rest[-1] not in "\r\n":
        pass


def _is_text(text: str) -> bool:
    return NO_CHARACTER not in text and not any("\ud800" <= each <= "\udfff" for each in text)


def _cleaned(text: str) -> str:
    return text[:MOST_RECORD_CHARACTERS].replace("\0", NO_CHARACTER).encode("utf-8", "replace").decode()
