"""Published files on disk: find them by cluster, unpack gzip and tar.gz archives, check headers, count lines.

Unpacked files are named by table, never by their path in a tar archive.
"""

import gzip
import re
import shutil
import tarfile
import zlib
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import IO, Final

import numpy as np

from pipelines.errors import SourceError
from pipelines.lake.sources.source import RawTable, Records, Source

CHUNK_BYTES = 1 << 22
DAMAGED = (EOFError, gzip.BadGzipFile, zlib.error, tarfile.TarError)
SAFE_CLUSTER: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*")


@dataclass(frozen=True, slots=True, kw_only=True)
class Found:
    """The file with a published table; `members` are the table's possible names in it if the file is a tar archive."""

    table: RawTable
    path: Path
    members: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True, kw_only=True)
class Cluster:
    """A cluster of a trace and the files with its tables."""

    name: str
    files: tuple[Found, ...]

    def __str__(self) -> str:
        """Return the cluster as messages name it."""
        return f"cluster {self.name}"


@dataclass(slots=True, kw_only=True)
class Published:
    """One published table of a cluster: its file name for messages, and the unpacked file to read (None if absent).

    `records` reads its rows, from the moment when it is loaded.
    """

    table: RawTable
    file: str | None
    plain: Path | None
    records: Records | None = None

    @property
    def size(self) -> int:
        """Return the size of the unpacked file in bytes."""
        return self.plain.stat().st_size if self.plain else 0


def clusters_in(source: Source, folder: Path) -> list[Cluster]:
    """Return every cluster with its files; no file is read."""
    if not folder.is_dir():
        raise SourceError(
            f"no folder {folder}; expected the published files of {source.name}. Get them with `taut fetch`."
        )
    clusters = []
    for name, place in source.clusters(folder).items():
        if not SAFE_CLUSTER.fullmatch(name):
            raise SourceError(
                f"a folder or file of the cluster {name[:80]!r}; expected letters, digits and . _ -. Rename it."
            )
        tables = [table.of(name) for table in source.tables]
        files = {table.name: find(table, place) for table in tables}
        for table in tables:
            if table.required and files[table.name] is None:
                raise SourceError(f"no {table.name} table in {place}; expected {expected_names(table)}")
        clusters.append(Cluster(name=name, files=tuple(f for f in files.values() if f)))
    if not clusters:
        required = " and ".join(expected_names(t) for t in source.tables if t.required)
        above = folder.absolute().parent
        if folder.name in source.clusters(above):
            raise SourceError(f"{folder} is one cluster of {source.name}; expected the folder above: --from {above}")
        raise SourceError(f"no cluster of {source.name} in {folder}; expected {required}")
    return clusters


def published_tables(source: Source, cluster: Cluster, folder: Path, stage: Path) -> list[Published]:
    """Unpack a cluster's files below `stage`; return its tables, those without a file too."""
    plain = unpack(cluster.files, stage)
    files = {f.table.name: f.path.relative_to(folder).as_posix() for f in cluster.files}
    published = [Published(table=t, file=files.get(t.name), plain=plain.get(t.name)) for t in source.tables]
    for one in published:
        if one.table.required and one.plain is None:
            raise SourceError(f"{one.file} lacks the {one.table.name} table; expected {expected_names(one.table)}")
    return published


def find(table: RawTable, folder: Path) -> Found | None:
    """Return the first existing file that can hold the table: by `stems` and `suffixes`, then `archives`."""
    for stem in table.stems:
        for suffix in table.suffixes:
            path = folder / f"{stem}{suffix}"
            if path.is_file():
                members = frozenset({f"{stem}.csv"}) if suffix == ".tar.gz" else frozenset[str]()
                return Found(table=table, path=path, members=members)
    plain = frozenset(f"{stem}{s}" for stem in table.stems for s in table.suffixes if not s.endswith(".gz"))
    paths = (folder / archive for archive in table.archives)
    return next((Found(table=table, path=path, members=plain) for path in paths if path.is_file()), None)


def expected_names(table: RawTable) -> str:
    """Return the accepted file names of a table as text for an error message."""
    names = [f"{stem}{suffix}" for stem in table.stems for suffix in table.suffixes]
    return " or ".join([*names, *table.archives])


def unpack(found: Iterable[Found], into: Path) -> dict[str, Path]:
    """Return an uncompressed file per table; compressed files are unpacked into `into`, reading each archive once.

    A table that is missing from its archive is missing from the result.
    """
    plain: dict[str, Path] = {}
    archives: dict[Path, list[Found]] = {}
    for one in found:
        if one.members:
            archives.setdefault(one.path, []).append(one)
        elif one.path.suffix == ".gz":
            plain[one.table.name] = _gunzip(one.path, into / one.table.name)
        else:
            plain[one.table.name] = one.path
    for path, wanted in archives.items():
        plain |= _untar(path, wanted, into)
    return plain


def _gunzip(path: Path, target: Path) -> Path:
    try:
        with gzip.open(path) as packed, target.open("wb") as out:
            shutil.copyfileobj(packed, out, CHUNK_BYTES)
    except DAMAGED as error:
        raise _damaged(path, error) from error
    return target


def _untar(path: Path, wanted: list[Found], into: Path) -> dict[str, Path]:
    targets = {member: one.table.name for one in wanted for member in one.members}
    plain: dict[str, Path] = {}
    try:
        with gzip.open(path) as packed, tarfile.open(fileobj=packed, mode="r|") as archive:
            for member in archive:
                _refuse_unsafe(path, member)
                name = targets.get(PurePosixPath(member.name).name)
                content = archive.extractfile(member) if name is not None and member.isfile() else None
                if content is not None and name is not None:
                    plain[name] = _copy(content, into / name, member.size)
            while packed.read(CHUNK_BYTES):  # read to the end, so that gzip verifies its checksum
                pass
    except DAMAGED as error:
        raise _damaged(path, error) from error
    return plain


def _refuse_unsafe(path: Path, member: tarfile.TarInfo) -> None:
    inside = PurePosixPath(member.name)
    if inside.is_absolute() or ".." in inside.parts or not (member.isfile() or member.isdir()):
        message = f"{path.name} holds {member.name[:80]!r}, a link, or a path outside the folder; expected plain files"
        raise SourceError(f"{message}. Fetch the archive again from its publisher.")


def _copy(content: IO[bytes], target: Path, size_bytes: int) -> Path:
    with target.open("wb") as out:
        shutil.copyfileobj(content, out, CHUNK_BYTES)
        if out.tell() != size_bytes:
            raise EOFError(f"{out.tell()} of {size_bytes} bytes")
    return target


def _damaged(path: Path, error: Exception) -> SourceError:
    return SourceError(f"{path.name} is truncated or damaged ({error}); expected a whole archive. Fetch it again.")


def count_rows(path: Path) -> int:
    """Count the lines that are not empty from the bytes of the file, independently of any CSV reader."""
    rows, line_open = 0, False
    with path.open("rb") as stream:
        while chunk := stream.read(CHUNK_BYTES):
            data = np.frombuffer(chunk, dtype=np.uint8)
            inside = (data != ord("\n")) & (data != ord("\r"))
            rows += int(np.count_nonzero(inside[1:] & ~inside[:-1])) + int(inside[0] and not line_open)
            line_open = bool(inside[-1])
    return rows


def header_of(path: Path) -> list[str]:
    """Return the column names in the first line; an empty list for an empty file."""
    with path.open("rb") as stream:
        line = stream.readline(CHUNK_BYTES).decode("utf-8", errors="replace")
    names = [name.strip() for name in line.removeprefix("\ufeff").split(",")]
    while names and not names[-1]:
        names.pop()
    return names


def ends_with(path: Path, last: bytes) -> bool:
    """Return whether the file ends with `last`, ignoring trailing white space; False for an empty file."""
    with path.open("rb") as stream:
        stream.seek(max(0, path.stat().st_size - 4096))
        return stream.read().rstrip().endswith(last)


def check_header(one: Published, plain: Path) -> list[str]:
    """Check a file's header; return its column names, or the declared names if it has no header or is empty."""
    expected = one.table.header
    if expected is None or not plain.stat().st_size:
        return [c.name for c in one.table.columns]
    found = header_of(plain)
    wild = expected.index("*") if "*" in expected else None
    comparable = found if wild is None else [*found[:wild], "*", *found[len(found) - len(expected) + wild + 1 :]]
    if [_plain_name(n) for n in comparable] != [_plain_name(n) for n in expected]:
        message = f"{one.file} has the columns {', '.join(found)[:200]!r}; expected {', '.join(expected)!r}"
        raise SourceError(f"{message}. Is it another table's file?")
    return found


def _plain_name(name: str) -> str:
    return re.sub("[^a-z0-9*]", "", name.lower())
