"""Records of a file of JSON lines: one object a line; a column `a.b` is the key of that name, or `b` within `a`.

Numbers keep the digits they are written with. Called by `pipelines.lake.generic.declaration`.
"""

import json
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from pipelines.errors import SourceError
from pipelines.lake.generic.mapping import RowsMapping
from pipelines.lake.generic.records import UNREADABLE, Record
from pipelines.lake.generic.text_lines import lines_of

SEEN_NAMES = 40


def json_records(path: Path, file: str, rows: RowsMapping, wanted: Sequence[str | int]) -> Iterator[Record]:
    """Yield a record of the wanted columns for every line that is not empty.

    Raises
    ------
    SourceError
        If no line at all has one of the wanted columns.
    """
    names = [str(name) for name in wanted]
    absent, seen, readable = set(names), dict[str, None](), False
    for line in lines_of(path, rows.encoding):
        raw = line.text.rstrip("\r\n")
        if not raw.strip():
            continue
        found = _object(raw) if line.fault is None else None
        if found is None:
            yield Record(line.number, raw, (), line.fault or UNREADABLE)
            continue
        readable = True
        if absent:
            absent -= {name for name in absent if _has(found, name)}
            seen |= dict.fromkeys(list(found)[: SEEN_NAMES - len(seen)])
        try:
            yield Record(line.number, raw, [text_of(_value(found, name)) for name in names])
        except ValueError:
            yield Record(line.number, raw, (), UNREADABLE)
    if readable and absent:
        held = ", ".join(repr(name[:60]) for name in seen)
        raise SourceError(f"{file} lacks the column {min(absent)!r} that the mapping names; its objects have {held}")


def text_of(value: object) -> str | None:
    """Return a value as a field of text; lists and objects as JSON.

    Raises
    ------
    ValueError
        If it holds what is no character.
    """
    if value is None:
        return None
    text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
    if not text.isascii():
        text.encode()  # lone surrogates, which JSON can escape, are no text
    if "\0" in text:
        raise ValueError("a NUL character")
    return text


def _object(line: str) -> dict[str, object] | None:
    try:
        found = json.loads(line, parse_float=str, parse_int=str, parse_constant=str)
    except (ValueError, RecursionError):
        return None
    return found if isinstance(found, dict) else None


def _has(found: Mapping[str, object], name: str) -> bool:
    return _place(found, name) is not None


def _value(found: Mapping[str, object], name: str) -> object:
    place = _place(found, name)
    return place[0][place[1]] if place else None


def _place(found: Mapping[str, object], name: str) -> tuple[Mapping[str, object], str] | None:
    """Return the object and the key in it that a name means."""
    if name in found:
        return found, name
    outer, _, inner = name.partition(".")
    within = found.get(outer)
    return _place(within, inner) if inner and isinstance(within, dict) else None
