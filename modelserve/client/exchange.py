"""Send a call until it is answered or its time is over: connections, tries, and the end of patience.

What is sent and what the answer means is elsewhere, and when to try again is `modelserve.client.policy`'s.
Called by `modelserve.client.asynchronous`; the one file of the client that knows httpx2.
"""

import asyncio
import random
import re
import ssl
import time
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from types import MappingProxyType
from typing import Final
from urllib.parse import urlsplit

import httpx2

from modelserve.client.calls import SHOWN, Call, Reply, check_status, problem_of, saying
from modelserve.client.policy import BUSY_STATUSES, Retries, Timeouts, Turns, retry_after_s
from modelserve.errors import BadRequest, ClientError, ServiceUnavailable

FOREIGN: Final = (
    httpx2.HTTPError,
    httpx2.InvalidURL,
    httpx2.CookieConflict,
    httpx2.StreamError,
    httpx2.SSEError,
    OSError,
)
"""Whatever httpx2 and the sockets under it raise; none of it leaves this file."""

HEADERS: Final = MappingProxyType({"content-type": "application/json", "accept": "application/json"})
TOKEN: Final = re.compile(r"[!-~]+")


@dataclass(frozen=True, slots=True, kw_only=True)
class Surroundings:
    """What time and chance a client goes by; tests bring their own."""

    clock: Callable[[], float] = time.monotonic
    sleep: Callable[[float], Awaitable[None]] = asyncio.sleep
    now: Callable[[], datetime] = lambda: datetime.now(UTC)
    rng: random.Random = field(default_factory=random.Random)


class Exchange:
    """The connections to one service at one or several addresses, which are tried in turn."""

    def __init__(
        self,
        addresses: Sequence[str],
        *,
        token: str | None,
        ca_file: Path | None,
        verify: bool,
        timeouts: Timeouts,
        retries: Retries,
        surroundings: Surroundings,
        transport: httpx2.AsyncBaseTransport | None,
    ) -> None:
        self.addresses = [checked_address(address) for address in addresses]
        if not self.addresses:
            raise BadRequest("client: found no address, expected at least one, as http://127.0.0.1:8080")
        self._timeouts, self._retries, self._around = timeouts, retries, surroundings
        self._first = 0
        # Neither proxies nor passwords of the environment: the token goes to the addresses given, and nowhere else.
        self._http = httpx2.AsyncClient(
            headers={**HEADERS, **_authorization(token)},
            verify=_tls(self.addresses, ca_file, verify=verify),
            timeout=httpx2.Timeout(timeouts.answer_s, connect=timeouts.connect_s),
            limits=httpx2.Limits(max_connections=64, max_keepalive_connections=16, keepalive_expiry=4.0),
            follow_redirects=False,
            trust_env=False,
            transport=transport,
        )

    def deadline(self) -> float:
        """Return the clock's reading at which a method that begins now gives up."""
        return self._around.clock() + self._timeouts.total_s

    async def send(self, call: Call, deadline: float) -> bytes:
        """Send a call, again where that is safe, and return the answer's body.

        Raises
        ------
        ServiceUnavailable
            No address answered before `deadline`, or one failed.
        Refused, WrongAnswer
            One did, with another status than the call expects.
        """
        if self._http.is_closed:
            raise ClientError(f"{call}: found the client closed; expected calls before `close()` only")
        turns = Turns(addresses=len(self.addresses), first=self._first, retries=self._retries, rng=self._around.rng)
        said, tries = "its time was over before the first try", 0
        while (turn := turns.next()) is not None and max(turn[1], self._around.clock()) < deadline:
            address, free_at = turn
            if (wait := free_at - self._around.clock()) > 0.0:
                await self._around.sleep(wait)
            tries += 1
            outcome = await self._try(address, call, deadline)
            if isinstance(outcome, Reply) and (outcome.status in call.expected or outcome.status not in BUSY_STATUSES):
                self._first = address
                check_status(call, outcome)
                return outcome.content
            said = self._note(turns, address, outcome)
            if not call.repeatable:
                said += "; it is not sent again, and may have been done"
                break
        raise ServiceUnavailable(
            f"{call}: found no answer in {tries} tries at {', '.join(self.addresses)}; the last: {said}; "
            f"expected one within {self._timeouts.total_s:g} s; see that the service runs and is ready"
        )

    async def _try(self, address: int, call: Call, deadline: float) -> Reply | str:
        """Send a call once; a string says why nothing came back."""
        limit_s = min(self._timeouts.connect_s + self._timeouts.answer_s, deadline - self._around.clock())
        try:
            # httpx2 limits each read; a whole try, with names looked up and answers that trickle, ends here.
            async with asyncio.timeout(limit_s):
                response = await self._http.request(
                    call.method, self.addresses[address] + call.path, content=call.body, params=dict(call.params)
                )
        except TimeoutError:
            return f"{self.addresses[address]} did not answer within {limit_s:.3g} s"
        except FOREIGN as error:
            return f"{self.addresses[address]}: {type(error).__name__} {str(error)[:SHOWN]}".rstrip()
        return Reply(
            status=response.status_code, content=response.content, retry_after=response.headers.get("retry-after")
        )

    def _note(self, turns: Turns, address: int, outcome: Reply | str) -> str:
        now = self._around.clock()
        if isinstance(outcome, str):
            turns.failed(address, now=now)
            return outcome
        asked_s = retry_after_s(outcome.retry_after, self._around.now())
        turns.failed(address, now=now, status=outcome.status, retry_after_s=asked_s)
        return f"{self.addresses[address]} said {saying(outcome.status, problem_of(outcome))}"

    async def close(self) -> None:
        """Close the connections."""
        await self._http.aclose()


def checked_address(address: str) -> str:
    """Return an address as the calls are appended to it.

    Raises
    ------
    BadRequest
        It is no address of a service.

    Examples
    --------
    >>> checked_address("http://127.0.0.1:8080/")
    'http://127.0.0.1:8080'
    """
    try:
        parsed = urlsplit(address)
        named = bool(parsed.hostname) and parsed.port != 0
    except ValueError:
        parsed, named = urlsplit(""), False
    if parsed.scheme not in ("http", "https") or not named or parsed.query or parsed.fragment:
        raise BadRequest(f"client: found no address in {_shown(address)!r}, expected one as http://127.0.0.1:8080")
    if "@" in parsed.netloc:
        raise BadRequest("client: found a user name in the address, expected none; give a token instead")
    return address.rstrip("/")


def _shown(address: str) -> str:
    """Return an address without what might be a password."""
    return address.rpartition("@")[2][:60]


def _authorization(token: str | None) -> dict[str, str]:
    if token is None:
        return {}
    if not TOKEN.fullmatch(token):
        raise BadRequest("client: found a token with blanks or other signs, expected visible ASCII only")
    return {"authorization": f"Bearer {token}"}


def _tls(addresses: Sequence[str], ca_file: Path | None, *, verify: bool) -> ssl.SSLContext | bool:
    if not verify or not any(address.startswith("https") for address in addresses):
        return False
    try:
        return ssl.create_default_context(cafile=None if ca_file is None else str(ca_file))
    except OSError as error:
        raise BadRequest(f"client: found no certificates in {ca_file}: {error}; expected a PEM file") from error
