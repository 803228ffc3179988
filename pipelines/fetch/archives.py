"""Unpack the wanted members of published archives, never outside the target folder or beyond the declared sizes."""

import gzip
import os
import shutil
import stat
import tarfile
import zipfile
import zlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO

from pipelines.errors import FetchError
from pipelines.fetch.download import mismatch
from pipelines.fetch.publication import Member

MAX_MEMBERS = 10_000
_CHUNK_BYTES = 1 << 20
# Bytes allowed for a tar archive's headers and padding, in addition to its members' bytes.
_TAR_OVERHEAD_BYTES = MAX_MEMBERS * 1024


@dataclass(frozen=True, slots=True, kw_only=True)
class _Entry:
    """One entry of an archive: path, declared size and content (None for a folder)."""

    path: str
    size_bytes: int
    body: IO[bytes] | None


def unpack(archive: Path, target: Path, members: Sequence[Member], *, max_bytes: int) -> list[Path]:
    """Unpack the wanted members of a .tar.gz or .zip archive into `target`: all of them, or none after an error.

    A member matches by the end of its path. Return the files written, in the order of `members`.
    """
    staging = archive.with_name(f".{archive.name}.unpacking")
    shutil.rmtree(staging, ignore_errors=True)  # left over from an interrupted run
    staging.mkdir()
    try:
        _stage(archive, staging, members, max_bytes)
        for member in members:
            staged = staging / member.path
            if not staged.exists():
                raise FetchError(f"{archive.name} holds no {member.path}: the manifest means another archive")
            if fault := mismatch(staged, size_bytes=member.size_bytes, sha256=member.sha256):
                raise FetchError(f"{member.path} in {archive.name}: {fault}")
        return [_publish(staging / member.path, target / member.path) for member in members]
    finally:
        shutil.rmtree(staging)


def are_unpacked(target: Path, members: Sequence[Member]) -> bool:
    """Return whether `target` has every member with its declared size and checksum."""
    return all(
        (target / member.path).is_file()
        and mismatch(target / member.path, size_bytes=member.size_bytes, sha256=member.sha256) is None
        for member in members
    )


def _stage(archive: Path, staging: Path, members: Sequence[Member], max_bytes: int) -> None:
    wanted = {member.path for member in members}
    claimed_bytes = 0
    try:
        entries = _zip_entries(archive) if archive.name.endswith(".zip") else _tar_entries(archive, max_bytes)
        for number, entry in enumerate(entries, start=1):
            claimed_bytes += entry.size_bytes
            if claimed_bytes > max_bytes or number > MAX_MEMBERS:
                raise FetchError(_too_large(archive, max_bytes))
            path = next((path for path in wanted if f"/{entry.path}".endswith(f"/{path}")), None)
            if entry.body is not None and path is not None:
                _write(entry.body, staging / path, archive)
    except (tarfile.TarError, zipfile.BadZipFile, gzip.BadGzipFile, zlib.error, EOFError) as error:
        raise FetchError(f"{archive.name} is damaged: {error}; delete it and run the command again") from error
    except RuntimeError as error:  # zipfile raises it for encryption and unknown compression
        raise FetchError(f"{archive.name} is encrypted or packed in a way that is not read: {error}") from error


def _zip_entries(archive: Path) -> Iterator[_Entry]:
    with zipfile.ZipFile(archive) as packed:
        for info in packed.infolist():
            # The upper 16 bits are the Unix file mode; zip files made on other systems have 0 there.
            kind = stat.S_IFMT(info.external_attr >> 16)
            _refuse_unsafe(archive, info.filename, is_plain=kind in (0, stat.S_IFREG, stat.S_IFDIR))
            if info.is_dir():
                yield _Entry(path=info.filename, size_bytes=0, body=None)
            else:
                with packed.open(info) as body:
                    yield _Entry(path=info.filename, size_bytes=info.file_size, body=body)


def _tar_entries(archive: Path, max_bytes: int) -> Iterator[_Entry]:
    with _BoundedGzip(archive, max_bytes) as plain, tarfile.open(fileobj=plain, mode="r|") as tar:
        for info in tar:
            _refuse_unsafe(archive, info.name, is_plain=info.isreg() or info.isdir())
            yield _Entry(path=info.name, size_bytes=info.size, body=tar.extractfile(info))


class _BoundedGzip(gzip.GzipFile):
    """A gzip reader that raises FetchError if the data decompress to more than the declared size plus tar headers."""

    def __init__(self, archive: Path, max_bytes: int) -> None:
        super().__init__(archive, "rb")
        self._refusal = _too_large(archive, max_bytes)
        self._left_bytes = max_bytes + _TAR_OVERHEAD_BYTES

    def read(self, size: int | None = -1) -> bytes:
        chunk = super().read(size)
        self._left_bytes -= len(chunk)
        if self._left_bytes < 0:
            raise FetchError(self._refusal)
        return chunk


def _refuse_unsafe(archive: Path, name: str, *, is_plain: bool) -> None:
    parts = name.split("/")
    if name.startswith("/") or ".." in parts or "\\" in name or "\0" in name or ":" in parts[0]:
        raise FetchError(f"{archive.name}: member {name[:80]!r} lies outside the target: refused to unpack it")
    if not is_plain:
        raise FetchError(f"{archive.name}: member {name[:80]!r} is a link or a device: refused to unpack it")


def _write(body: IO[bytes], path: Path, archive: Path) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    if path.exists():
        raise FetchError(f"{archive.name} holds {path.name} twice: expected once")
    with path.open("xb") as file:
        shutil.copyfileobj(body, file, _CHUNK_BYTES)
        file.flush()
        os.fsync(file.fileno())


def _publish(staged: Path, final: Path) -> Path:
    final.parent.mkdir(parents=True, exist_ok=True)
    return staged.replace(final)


def _too_large(archive: Path, max_bytes: int) -> str:
    return f"{archive.name} unpacks to more than the {max_bytes} bytes (or {MAX_MEMBERS} members) its manifest allows"
