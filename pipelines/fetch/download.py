"""One file over HTTP: resumed after a break, bounded, verified, and only then given its name.

No manifest is read and no archive opened here; while it is incomplete a file is called `<name>.part`.
Called by `pipelines.fetch.fetch`.
"""

import hashlib
import ipaddress
import os
import re
from collections.abc import Callable
from dataclasses import dataclass
from http import HTTPStatus
from pathlib import Path
from typing import Literal

import httpx2

from pipelines.errors import FetchError
from pipelines.fetch.partial import Partial, Unfit, open_alone
from pipelines.fetch.publication import PublishedFile


def checksum(path: Path) -> str:
    """Return the SHA-256 of a file, in hex."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def mismatch(path: Path, *, size_bytes: int | None, sha256: str | None) -> str | None:
    """Say what was found and what was expected when a file differs from what it should be; null is not compared.

    Examples
    --------
    >>> mismatch(Path(__file__), size_bytes=None, sha256=None) is None
    True
    """
    found_bytes = path.stat().st_size
    if size_bytes is not None and found_bytes != size_bytes:
        return f"found {found_bytes} bytes, expected {size_bytes}"
    if sha256 is not None and (found := checksum(path)) != sha256:
        return f"found SHA-256 {found[:12]}..., expected {sha256[:12]}..."
    return None


Progress = Callable[[str, int, int | None], None]
"""Called with the file's name, the bytes held so far, and the bytes in all where known."""

_ANOTHER_FILE = "the publisher's file has changed, or something on the way answers in its place"
_DELETED = f"what arrived was deleted; run the command again, and if this comes again, {_ANOTHER_FILE}"
_MAX_REDIRECTS = 5
_TRY_AGAIN = frozenset({HTTPStatus.REQUEST_TIMEOUT, HTTPStatus.TOO_EARLY, HTTPStatus.TOO_MANY_REQUESTS})
_CONTENT_RANGE = re.compile(r"bytes (?:(\d{1,18})-\d{1,18}|\*)/(\d{1,18}|\*)", re.ASCII)


@dataclass(frozen=True, slots=True, kw_only=True)
class Patience:
    """How long to wait for a server, and how often to come back; an attempt that gains bytes starts the count anew."""

    connect_timeout_s: float = 20.0
    read_timeout_s: float = 60.0
    attempts: int = 6
    first_pause_s: float = 1.0
    longest_pause_s: float = 60.0

    def pause_s(self, failures: int) -> float:
        """Return how long to wait after so many failures in a row: doubling, bounded.

        Examples
        --------
        >>> [Patience().pause_s(n) for n in (1, 2, 3, 9)]
        [1.0, 2.0, 4.0, 60.0]
        """
        return min(self.first_pause_s * 2.0 ** (failures - 1), self.longest_pause_s)


class _Broken(Exception):
    """A transfer that may go on when tried again."""

    def __init__(self, reason: str, *, wait_s: float = 0.0) -> None:
        super().__init__(reason)
        self.wait_s = wait_s


def open_client(start_url: str, patience: Patience) -> httpx2.Client:
    """Open a client that follows redirects, but never off HTTPS.

    Plain HTTP is allowed from one loopback address to another, for mirrors on this machine.

    Raises
    ------
    FetchError
        When `start_url` is not an address to fetch from; later, from any request to one that is not.
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
        # The bytes that the checksum was made of, not a compressed form of them.
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
    """Fetch one file into `folder`; it has its name there only once its size and checksum hold.

    Returns
    -------
    str
        `resumed` when the file goes on from a part that an earlier run left, `fetched` otherwise.

    Raises
    ------
    FetchError
        When the file is not there, is another than the manifest says (what was held is deleted), or when the server
        keeps failing (what was held stays as `<name>.part` for the next run).
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
                        f"run the command again to go on from byte {partial.held_bytes}"
                    ) from broken
                sleep(max(patience.pause_s(failures), min(broken.wait_s, patience.longest_pause_s)))
        partial.body.flush()
        os.fsync(partial.body.fileno())
        if fault := mismatch(partial.path, size_bytes=file.size_bytes, sha256=file.sha256):
            raise Unfit(f"{file.name}: {fault}: {_DELETED}")
        partial.path.replace(folder / file.name)
        return "resumed" if partial.kept_bytes else "fetched"


def _receive(file: PublishedFile, url: str, partial: Partial, client: httpx2.Client, progress: Progress) -> None:
    """Ask for what is missing and append it; return when the server says that this is all."""
    if partial.held_bytes == file.size_bytes:
        return  # an earlier run ended between the last byte and the verification
    try:
        with client.stream("GET", url, headers=_range_headers(partial)) as response:
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
        raise FetchError(f"{url} leads to something that is no address: {error}") from error
    except httpx2.RequestError as error:
        raise _Broken(f"{type(error).__name__}: {error}") from error
    if file.size_bytes is not None and partial.held_bytes < file.size_bytes:
        raise _Broken(f"the body ended at {partial.held_bytes} of {file.size_bytes} bytes")


def _range_headers(partial: Partial) -> dict[str, str]:
    if not partial.held_bytes:
        return {}
    # Without an ETag the checksum alone tells whether the two pieces belong together.
    unchanged = {"If-Range": partial.etag} if partial.etag else {}
    return {"Range": f"bytes={partial.held_bytes}-", **unchanged}


def _is_complete(response: httpx2.Response, partial: Partial) -> bool:
    """Tell whether a refused range means that nothing is missing; otherwise drop what is held and break off."""
    if response.status_code != HTTPStatus.REQUESTED_RANGE_NOT_SATISFIABLE:
        return False
    if _content_range(response) == (None, partial.held_bytes):
        return True
    partial.start_over()
    raise _Broken("the server refused to go on from where the last transfer broke")


def _accept(file: PublishedFile, response: httpx2.Response, partial: Partial) -> int | None:
    """Check status and headers, make ready for the body, and return the file's size as far as it is known."""
    etag = response.headers.get("ETag")
    if response.status_code == HTTPStatus.PARTIAL_CONTENT:
        start, total_bytes = _content_range(response)
        _refuse_by_headers(file, response, total_bytes)
        if start != partial.held_bytes or (partial.etag and etag and etag != partial.etag):
            partial.start_over()
            raise _Broken("the server sent another piece than the one asked for")
    elif response.status_code == HTTPStatus.OK:
        length = response.headers.get("Content-Length", "")
        total_bytes = int(length) if length.isdecimal() else None
        _refuse_by_headers(file, response, total_bytes)
        partial.start_over()
        partial.note_etag(etag)
    else:
        raise _status_error(file, response)
    return file.size_bytes if total_bytes is None else total_bytes


def _refuse_by_headers(file: PublishedFile, response: httpx2.Response, total_bytes: int | None) -> None:
    """Refuse a body that cannot be the file before a byte of it is taken; what is held stays."""
    if (encoding := response.headers.get("Content-Encoding", "identity")) != "identity":
        raise FetchError(f"{response.url} sends {encoding}-encoded bytes though the plain file was asked for")
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
        asked = response.headers.get("Retry-After", "")
        return _Broken(f"the server answered {status}", wait_s=float(asked) if asked.isdecimal() else 0.0)
    return FetchError(
        f"{response.url} answered {status}, expected {file.name}: "
        "the publisher may have moved it; look at the homepage in its manifest"
    )


def _content_range(response: httpx2.Response) -> tuple[int | None, int | None]:
    """Return where the body starts and how long the file is, as far as the Content-Range header says."""
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
