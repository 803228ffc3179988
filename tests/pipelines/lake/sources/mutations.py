"""Ways to spoil a file, by name, each from bytes and a random generator to other bytes; and how an ingest must end."""

import random
from collections.abc import Callable
from pathlib import Path
from typing import Final

from features.tables import TABLES
from pipelines.lake.lake import Lake
from pipelines.lake.manifest import Manifest

Mutation = Callable[[bytes, random.Random], bytes]

FIELDS: Final = (b"", b"NA", b" NA ", b"nan", b"inf", b" 1.0", b"1e400", b"1_000", b"-3", b"x", b'"', b"\t7", b"None")
STRANGE: Final = (b"caf\xe9", "größe".encode("utf-16"), b"\xff\xfe", b"\x00", b"\x01", b"\x02", "日本".encode())


def cut(data: bytes, rng: random.Random) -> bytes:
    """Return the file up to somewhere."""
    return data[: rng.randrange(len(data))]


def flip_bits(data: bytes, rng: random.Random) -> bytes:
    """Flip one to eight bits anywhere."""
    spoiled = bytearray(data)
    for _ in range(rng.randint(1, 8)):
        spoiled[rng.randrange(len(spoiled))] ^= 1 << rng.randrange(8)
    return bytes(spoiled)


def flip_characters(data: bytes, rng: random.Random) -> bytes:
    """Replace one to eight bytes by printable ones, commas and line ends among them."""
    spoiled = bytearray(data)
    for _ in range(rng.randint(1, 8)):
        spoiled[rng.randrange(len(spoiled))] = rng.choice(b",\n .-e19'\"N;_:/")
    return bytes(spoiled)


def change_delimiter(data: bytes, rng: random.Random) -> bytes:
    """Use another delimiter, in the whole file or in some lines."""
    other, share = rng.choice((b";", b"\t", b"|", b", ")), rng.choice((0.3, 1.0))
    return _by_line(data, lambda line: line.replace(b",", other) if rng.random() < share else line)


def add_mark(data: bytes, rng: random.Random) -> bytes:
    """Begin with a byte order mark."""
    return rng.choice((b"\xef\xbb\xbf", b"\xff\xfe", b"\xfe\xff")) + data


def change_line_ends(data: bytes, rng: random.Random) -> bytes:
    """End lines as another system does, all of them or some."""
    end, share = rng.choice((b"\r\n", b"\r", b"\n\n", b"\n\r")), rng.choice((0.3, 1.0))
    return b"".join(
        line[:-1] + end if line.endswith(b"\n") and rng.random() < share else line for line in data.splitlines(True)
    )


def mix_encodings(data: bytes, rng: random.Random) -> bytes:
    """Put characters of other encodings, or of none, somewhere."""
    at = rng.randrange(len(data))
    return data[:at] + rng.choice(STRANGE) + data[at:]


def quote_newlines(data: bytes, rng: random.Random) -> bytes:
    """Quote some fields, with a line end or a comma inside."""
    inside = rng.choice((b'"a\nb"', b'"a,b"', b'"a""b"', b'"a', b"'a\nb'"))
    return _by_field(data, rng, lambda _: inside)


def add_header(data: bytes, rng: random.Random) -> bytes:
    """Put a line of names first, or first and again further down."""
    lines = data.splitlines(True)
    header = b",".join(b"column%d" % i for i in range(lines[0].count(b",") + 1)) + b"\n"
    again = rng.randrange(len(lines) + 1)
    return b"".join([header, *lines[:again], *([header] if rng.random() < 0.5 else []), *lines[again:]])


def move_columns(data: bytes, rng: random.Random) -> bytes:
    """Exchange two columns of every line."""
    one, other = rng.randrange(6), rng.randrange(6)

    def moved(line: bytes) -> bytes:
        fields = line.rstrip(b"\n").split(b",")
        if max(one, other) < len(fields):
            fields[one], fields[other] = fields[other], fields[one]
        return b",".join(fields) + line[len(line.rstrip(b"\n")) :]

    return _by_line(data, moved)


def swell(data: bytes, rng: random.Random) -> bytes:
    """Make some field gigantic."""
    return _by_field(data, rng, lambda _: rng.choice((b"9", b"x", b'"')) * rng.choice((70_000, 3_000_000)), most=1)


def repeat(data: bytes, rng: random.Random) -> bytes:
    """Repeat some lines, each as it stands or with its last field changed, anywhere."""
    lines = [line if line.endswith(b"\n") else line + b"\n" for line in data.splitlines(True)]
    for _ in range(rng.randint(1, 3)):
        line = rng.choice(lines)
        other = line.rpartition(b",")[0] + b",7\n"
        lines.insert(rng.randrange(len(lines) + 1), rng.choice((line, other)))
    return b"".join(lines)


def turn_back_time(data: bytes, rng: random.Random) -> bytes:
    """Exchange neighbouring fields of some lines, so that ends come before starts."""

    def turned(line: bytes) -> bytes:
        fields = line.rstrip(b"\n").split(b",")
        if len(fields) > 1 and rng.random() < 0.5:
            at = rng.randrange(len(fields) - 1)
            fields[at], fields[at + 1] = fields[at + 1], fields[at]
        return b",".join(fields) + line[len(line.rstrip(b"\n")) :]

    return _by_line(data, turned)


def change_fields(data: bytes, rng: random.Random) -> bytes:
    """Put strange numbers and texts into some fields."""
    return _by_field(data, rng, lambda _: rng.choice(FIELDS))


def change_counts(data: bytes, rng: random.Random) -> bytes:
    """Drop fields from some lines and add some to others."""

    def changed(line: bytes) -> bytes:
        drawn = rng.random()
        if drawn < 0.2:
            return line.rpartition(b",")[0] + b"\n"
        return line.rstrip(b"\n") + b",1" * rng.randint(1, 3) + b"\n" if drawn < 0.4 else line

    return _by_line(data, changed)


MUTATIONS: Final[dict[str, Mutation]] = {
    "cut": cut,
    "bits": flip_bits,
    "characters": flip_characters,
    "delimiter": change_delimiter,
    "mark": add_mark,
    "line_ends": change_line_ends,
    "encodings": mix_encodings,
    "quotes": quote_newlines,
    "header": add_header,
    "columns": move_columns,
    "gigantic": swell,
    "duplicates": repeat,
    "time": turn_back_time,
    "fields": change_fields,
    "counts": change_counts,
}


def _by_line(data: bytes, changed: Callable[[bytes], bytes]) -> bytes:
    return b"".join(changed(line) for line in data.splitlines(True))


def _by_field(data: bytes, rng: random.Random, changed: Callable[[bytes], bytes], most: int = 4) -> bytes:
    fields = data.split(b",")
    for _ in range(rng.randint(1, most)):
        at = rng.randrange(len(fields))
        kept = b"\n" + fields[at].partition(b"\n")[2] if b"\n" in fields[at] else b""
        fields[at] = changed(fields[at]) + kept
    return b",".join(fields)


def state(folder: Path) -> dict[str, bytes]:
    return {p.relative_to(folder).as_posix(): p.read_bytes() for p in folder.rglob("*") if p.is_file()}


def check_ended_well(place: Path, manifest: Manifest | None, before: dict[str, bytes]) -> None:
    """Check a lake after an ingest of `from`: nothing committed, or tables that hold and accounts that close."""
    lake = place / "lake"
    if manifest is None:
        assert not list(lake.rglob("*.parquet"))
        assert not (lake / "staging").exists()
        assert Lake(lake).traces() == []
    else:
        assert Lake(lake).table("quarantine").collect().height == manifest.rows_quarantined
        assert all(a.rows_in == a.rows_good + a.rows_quarantined for a in manifest.accounts)
        for name in {output.table for output in manifest.outputs} & set(TABLES):
            TABLES[name].validate(Lake(lake).table(name).collect())
    assert state(place / "from") == before
    assert {p.name for p in place.iterdir()} <= {"from", "lake", "mapping.toml"}
