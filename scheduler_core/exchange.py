"""One service's connections, for a caller that waits no longer than it says: a body out, a reply back.

What is sent and what a reply means is elsewhere; the one file of this package that knows an HTTP client.
Called by `modelserve.client.http_scale`.
"""

import asyncio
import re
import ssl
import threading
from collections.abc import Callable, Coroutine
from concurrent.futures import Future
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final, TypeVar
from urllib.parse import urlsplit

import httpx2

from scheduler_core.errors import BadInput, PredictorUnavailable

Result = TypeVar("Result")

OK: Final = 200
REFUSAL_BYTES: Final = 4_096
"""How much of a refusal is read, for the note."""

DROPPED: Final = (httpx2.RemoteProtocolError, httpx2.ReadError, httpx2.WriteError)
"""A connection that was lost; a kept one may have been closed while nobody looked, so it is tried anew, once."""

TOKEN: Final = re.compile(r"[!-~]+")


@dataclass(frozen=True, slots=True, kw_only=True)
class Reply:
    """What came back, whatever its status; `asked_rest_s` is what it asks to be left alone for."""

    status: int
    content: bytes = field(repr=False)
    asked_rest_s: float = 0.0


class Exchange:
    """The connections to one service, made as the first body is sent; safe from several threads.

    `address`, `token`, `token_file`, `ca_file`: as `HttpScale` takes them.
    """

    def __init__(
        self, address: str, *, token: str | None, token_file: Path | None, ca_file: Path | None, longest_s: float
    ) -> None:
        self.address = _checked_address(address)
        self._token = _checked_token(token, token_file)
        self._tls = _tls(self.address, ca_file)
        self._longest_s = longest_s
        self._lock = threading.Lock()
        self._closed = False
        self._thread: _LoopThread | None = None

    def post(
        self, path: str, body: bytes, *, most_bytes: int, left_s: float, read: Callable[[Reply], Result]
    ) -> Result:
        """Send a body and return what `read` makes of its reply, or give up after `left_s`, whatever it hangs on.

        Raises
        ------
        PredictorUnavailable
            No reply came in time, or one that is too large.
        httpx2.HTTPError
            Whatever else became of the connection.
        """
        future = self._line().start(lambda http: _read(http, self.address + path, body, most_bytes, read))
        try:
            return future.result(left_s)
        except TimeoutError:
            raise PredictorUnavailable(self._late()) from None
        except httpx2.TimeoutException as error:
            raise PredictorUnavailable(self._late()) from error
        finally:
            future.cancel()  # nobody waits for it any more; one that is done stays as it is

    def _late(self) -> str:
        return f"found no whole answer in time: the deadline of {self._longest_s:g} s passed"

    def without_token(self, text: str) -> str:
        """Return a text without the token: a service that echoes what it was sent does not bring it into a log."""
        return text if self._token is None else text.replace(self._token, "***")

    def close(self) -> None:
        """Close the connections; nothing is sent after it."""
        with self._lock:
            thread, self._thread, self._closed = self._thread, None, True
        if thread is not None:
            thread.close()

    def _line(self) -> "_LoopThread":
        with self._lock:
            if self._closed:
                raise PredictorUnavailable("found the connections closed")
            if self._thread is None:
                self._thread = _LoopThread(self._client)
            return self._thread

    def _client(self) -> httpx2.AsyncClient:
        # Neither proxies nor passwords of the environment: the token goes to the address given, and nowhere else.
        # Compressed answers are refused, so that what is read is what was sent.
        headers = {"content-type": "application/json", "accept": "application/json", "accept-encoding": "identity"}
        return httpx2.AsyncClient(
            headers=headers | ({} if self._token is None else {"authorization": f"Bearer {self._token}"}),
            verify=self._tls,
            timeout=httpx2.Timeout(self._longest_s),
            limits=httpx2.Limits(max_connections=8, max_keepalive_connections=2, keepalive_expiry=4.0),
            follow_redirects=False,
            trust_env=False,
        )


class _LoopThread:
    """An event loop in a thread that ends with the process, and the connections that live in it.

    A call can be broken off there at any moment, whatever it hangs on: a name that does not resolve, an answer that
    trickles.
    """

    def __init__(self, make: Callable[[], httpx2.AsyncClient]) -> None:
        self._http = make()
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="taut-http-scale", daemon=True)
        self._thread.start()

    def start(self, work: Callable[[httpx2.AsyncClient], Coroutine[object, object, Result]]) -> "Future[Result]":
        """Begin `work` over the connections."""
        return asyncio.run_coroutine_threadsafe(work(self._http), self._loop)

    def close(self) -> None:
        """Break off what is under way, close the connections, end the thread."""
        asyncio.run_coroutine_threadsafe(self._end(), self._loop).result()
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    async def _end(self) -> None:
        others = asyncio.all_tasks() - {asyncio.current_task()}
        for task in others:
            task.cancel()
        await asyncio.gather(*others, return_exceptions=True)
        await self._http.aclose()


async def _read(
    http: httpx2.AsyncClient, url: str, body: bytes, most_bytes: int, read: Callable[[Reply], Result]
) -> Result:
    return read(await _exchanged(http, url, body, most_bytes))


async def _exchanged(http: httpx2.AsyncClient, url: str, body: bytes, most_bytes: int) -> Reply:
    with suppress(*DROPPED):
        return await _exchanged_once(http, url, body, most_bytes)
    return await _exchanged_once(http, url, body, most_bytes)


async def _exchanged_once(http: httpx2.AsyncClient, url: str, body: bytes, most_bytes: int) -> Reply:
    async with http.stream("POST", url, content=body) as response:
        encoding = response.headers.get("content-encoding", "identity")
        if encoding != "identity":
            raise PredictorUnavailable(f"found an answer compressed as {encoding[:40]!r}, expected a plain one")
        answered = response.status_code == OK
        content = bytearray()
        async for chunk in response.aiter_raw():
            content += chunk
            if len(content) > (most_bytes if answered else REFUSAL_BYTES):
                break
        if answered and len(content) > most_bytes:
            raise PredictorUnavailable(f"found an answer of more than {most_bytes} bytes")
        rest_s = 0.0 if answered else _rest_s(response.headers.get("retry-after", ""))
        return Reply(status=response.status_code, content=bytes(content), asked_rest_s=rest_s)


def _rest_s(said: str) -> float:
    """Return the seconds of a `Retry-After`; 0 where it is a date or nothing, and the cool-down is as good."""
    return float(said[:9]) if said.isascii() and said.isdecimal() else 0.0


def _checked_address(address: str) -> str:
    try:
        parsed = urlsplit(address)
        named = bool(parsed.hostname) and parsed.port != 0
    except ValueError:
        parsed, named = urlsplit(""), False
    if "@" in parsed.netloc:
        raise BadInput("HTTP scale: found a user name in the address, expected none; give a token instead")
    if parsed.scheme not in ("http", "https") or not named or parsed.query or parsed.fragment:
        shown = address.rpartition("@")[2][:60]
        raise BadInput(f"HTTP scale: found no address in {shown!r}, expected one as http://127.0.0.1:8080")
    return address.rstrip("/")


def _checked_token(token: str | None, file: Path | None) -> str | None:
    if token is not None and file is not None:
        raise BadInput("HTTP scale: found a token and a file of one, expected one of them")
    if file is not None:
        try:
            token = file.read_text(encoding="utf-8").strip()
        except (OSError, UnicodeError) as error:
            raise BadInput(
                f"HTTP scale: found no token in {file} ({type(error).__name__}), expected a file of one"
            ) from error
    if token is not None and not TOKEN.fullmatch(token):
        raise BadInput("HTTP scale: found a token with blanks or other signs, expected visible ASCII only")
    return token


def _tls(address: str, ca_file: Path | None) -> ssl.SSLContext | bool:
    if not address.startswith("https"):
        return False
    try:
        return ssl.create_default_context(cafile=None if ca_file is None else str(ca_file))
    except OSError as error:
        raise BadInput(f"HTTP scale: found no certificates in {ca_file}: {error}; expected a PEM file") from error
