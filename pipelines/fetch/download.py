"""Download one file over HTTP: resume a broken download, limit the size, verify, then give the file its final name.

An incomplete file is called `<name>.part`, locked by one process. Only the checksum detects that the file changed on
the server between two requests.
"""

import fcntl
import hashlib
import ipaddress
import os
import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from http import HTTPStatus
from pathlib import Path
from typing import BinaryIO, Literal

import httpx2

from pipelines.errors import FetchError
from pipelines.fetch.publication import PublishedFile


def checksum(path: Path) -> str:
    """Return the SHA-256 of a file, in hex."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def mismatch(path: Path, *, size_bytes: int | None, sha256: str | None) -> str | None:
    """Describe how a file differs from the expected size or SHA-256 (None: not compared); None if it does not."""
    found_bytes = path.stat().st_size
    if size_bytes is not None and found_bytes != size_bytes:
        return f"found {found_bytes} bytes, expected {size_bytes}"
    if sha256 is not None and (found := checksum(path)) != sha256:
        return f"found SHA-256 {found[:12]}..., expected {sha256[:12]}..."
    return None


Progress = Callable[[str, int, int | None], None]
"""Function called with the file's name, the number of bytes received, and the file's size in bytes if known."""

_ANOTHER_FILE = "the publisher's file has changed, or a proxy answers instead"
_DELETED = f"the received bytes were deleted; run the command again; if this happens again, {_ANOTHER_FILE}"
_MAX_REDIRECTS = 5
_TRY_AGAIN = frozenset({HTTPStatus.REQUEST_TIMEOUT, HTTPStatus.TOO_EARLY, HTTPStatus.TOO_MANY_REQUESTS})
_CONTENT_RANGE = re.compile(r"bytes (?:(\d{1,18})-\d{1,18}|\*)/(\d{1,18}|\*)", re.ASCII)


@dataclass(frozen=True, slots=True, kw_only=True)
class Patience:
    """Timeouts, number of attempts, and pauses between attempts; an attempt that receives bytes resets the count."""

    connect_timeout_s: float = 20.0
    read_timeout_s: float = 60.0
    attempts: int = 6
    first_pause_s: float = 1.0
    longest_pause_s: float = 60.0

    def pause_s(self, failures: int) -> float:
        """Return the pause after `failures` consecutive failures: it doubles with each failure, up to a limit."""
        return min(self.first_pause_s * 2.0 ** (failures - 1), self.longest_pause_s)


class Unfit(FetchError):
    """Raised if the received bytes do not belong to the requested file; the partial file is emptied."""


class _Broken(Exception):
    """Raised for a transfer error after which another attempt may succeed."""

    def __init__(self, reason: str, *, wait_s: float = 0.0) -> None:
        super().__init__(reason)
        self.wait_s = wait_s


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

    def start_over(self) -> None:
        """Delete the received bytes."""
        self.body.seek(0)
        self.body.truncate()
        self.kept_bytes = 0


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
            if _is_at(path, body) and path.stat().st_size == 0:
                path.unlink()


def _is_at(path: Path, body: BinaryIO) -> bool:
    """Return whether `path` is still the open file; False after the file was completed and renamed."""
    return path.exists() and os.path.samestat(path.stat(), os.fstat(body.fileno()))


def open_client(start_url: str, patience: Patience) -> httpx2.Client:
    """Open a client that follows redirects, but only to HTTPS.

    Plain HTTP is allowed from one loopback address to another, for mirrors on this machine.
    """
    try:
        start = httpx2.URL(start_url)
    except httpx2.InvalidURL as error:
        raise FetchError(f"{start_url!r} is not an address: {error}") from error

    def refuse_downgrade(request: httpx2.Request) -> None:
        plain = request.url.scheme == "http" and _is_loopback(request.url.host) and _is_loopback(start.host)
        if request.url.scheme != "https" and not plain:
            raise FetchError(
                f"refused to fetch from {request.url}: expected an https address "
                "(plain http only for a mirror on this machine)"
            )

    refuse_downgrade(httpx2.Request("GET", start))
    return httpx2.Client(
        timeout=httpx2.Timeout(patience.read_timeout_s, connect=patience.connect_timeout_s),
        follow_redirects=True,
        max_redirects=_MAX_REDIRECTS,
        # Request uncompressed bytes: the checksums are those of the file itself.
        headers={"Accept-Encoding": "identity", "User-Agent": "taut"},
        event_hooks={"request": [refuse_downgrade]},
    )


def download(
    file: PublishedFile,
    url: str,
    folder: Path,
    *,
    client: httpx2.Client,
    patience: Patience,
    sleep: Callable[[float], None],
    progress: Progress,
) -> Literal["fetched", "resumed"]:
    """Download one file into `folder`; the file gets its final name only after verification of size and checksum.

    Return `resumed` if the download continued the partial file of an earlier run, else `fetched`.
    """
    with open_alone(folder / f"{file.name}.part") as partial:
        furthest, failures = partial.held_bytes, 0
        while True:
            try:
                _receive(file, url, partial, client, progress)
                break
            except _Broken as broken:
                if partial.held_bytes > furthest:
                    furthest, failures = partial.held_bytes, 0
                failures += 1
                if failures >= patience.attempts:
                    raise FetchError(
                        f"gave up on {url} after {failures} attempts without a new byte ({broken}): "
                        f"run the command again to resume from byte {partial.held_bytes}"
                    ) from broken
                sleep(max(patience.pause_s(failures), min(broken.wait_s, patience.longest_pause_s)))
        partial.body.flush()
        os.fsync(partial.body.fileno())
        if fault := mismatch(partial.path, size_bytes=file.size_bytes, sha256=file.sha256):
            raise Unfit(f"{file.name}: {fault}: {_DELETED}")
        partial.path.replace(folder / file.name)
        return "resumed" if partial.kept_bytes else "fetched"


def _receive(file: PublishedFile, url: str, partial: Partial, client: httpx2.Client, progress: Progress) -> None:
    """Request the missing bytes and append them to the partial file until it is complete."""
    if partial.held_bytes == file.size_bytes:
        return  # an earlier run received all bytes but ended before verification
    headers = {"Range": f"bytes={partial.held_bytes}-"} if partial.held_bytes else {}
    try:
        with client.stream("GET", url, headers=headers) as response:
            if _is_complete(response, partial):
                return
            total_bytes = _accept(file, response, partial)
            for chunk in response.iter_raw():
                partial.body.write(chunk)
                if partial.held_bytes > file.limit_bytes:
                    raise Unfit(f"{url} sends more than the {file.limit_bytes} bytes expected: {_DELETED}")
                progress(file.name, partial.held_bytes, total_bytes)
    except httpx2.TooManyRedirects as error:
        raise FetchError(f"{url} redirects more than {_MAX_REDIRECTS} times: check the address") from error
    except (httpx2.UnsupportedProtocol, httpx2.InvalidURL) as error:
        raise FetchError(f"{url} redirects to an invalid address: {error}") from error
    except httpx2.RequestError as error:
        raise _Broken(f"{type(error).__name__}: {error}") from error
    if file.size_bytes is not None and partial.held_bytes < file.size_bytes:
        raise _Broken(f"the body ended at {partial.held_bytes} of {file.size_bytes} bytes")


def _is_complete(response: httpx2.Response, partial: Partial) -> bool:
    """Return True if the range was refused because the file is complete; else delete the received bytes and raise."""
    if response.status_code != HTTPStatus.REQUESTED_RANGE_NOT_SATISFIABLE:
        return False
    if _content_range(response) == (None, partial.held_bytes):
        return True
    partial.start_over()
    raise _Broken("the server refused to resume the transfer")


def _accept(file: PublishedFile, response: httpx2.Response, partial: Partial) -> int | None:
    """Check status and headers; prepare the partial file for the body; return the file's size if known, else None."""
    if response.status_code == HTTPStatus.PARTIAL_CONTENT:
        start, total_bytes = _content_range(response)
        _refuse_by_headers(file, response, total_bytes)
        if start != partial.held_bytes:
            partial.start_over()
            raise _Broken("the server sent another range than the requested one")
    elif response.status_code == HTTPStatus.OK:
        length = response.headers.get("Content-Length", "")
        total_bytes = int(length) if length.isdecimal() else None
        _refuse_by_headers(file, response, total_bytes)
        partial.start_over()
    else:
        raise _status_error(file, response)
    return file.size_bytes if total_bytes is None else total_bytes


def _refuse_by_headers(file: PublishedFile, response: httpx2.Response, total_bytes: int | None) -> None:
    """Raise, before the body is read, if the response headers do not fit the expected file; keep the received bytes."""
    if (encoding := response.headers.get("Content-Encoding", "identity")) != "identity":
        raise FetchError(f"{response.url} sends {encoding}-encoded bytes though the plain file was requested")
    if total_bytes is None:
        return
    if file.size_bytes is not None and total_bytes != file.size_bytes:
        raise FetchError(f"{response.url} holds {total_bytes} bytes, expected {file.size_bytes}: {_ANOTHER_FILE}")
    if total_bytes > file.limit_bytes:
        raise FetchError(
            f"{response.url} holds {total_bytes} bytes, expected at most {file.limit_bytes}: {_ANOTHER_FILE}"
        )


def _status_error(file: PublishedFile, response: httpx2.Response) -> Exception:
    status = f"{response.status_code} {response.reason_phrase}".strip()
    if response.status_code >= 500 or response.status_code in _TRY_AGAIN:
        retry_after = response.headers.get("Retry-After", "")
        return _Broken(f"the server answered {status}", wait_s=float(retry_after) if retry_after.isdecimal() else 0.0)
    return FetchError(
        f"{response.url} answered {status}, expected {file.name}: "
        "the publisher may have moved it; look at the homepage in its manifest"
    )


def _content_range(response: httpx2.Response) -> tuple[int | None, int | None]:
    """Return the first byte's position and the file's size from the Content-Range header; None if not stated."""
    match = _CONTENT_RANGE.fullmatch(response.headers.get("Content-Range", "").strip())
    if match is None:
        return None, None
    start, total = match.groups()
    return (None if start is None else int(start)), (None if total == "*" else int(total))


def _is_loopback(host: str) -> bool:
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False
