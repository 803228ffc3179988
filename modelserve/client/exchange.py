"""Send calls to the service over HTTP, within limits on time and size, and retry them until a deadline.

`modelserve.client.messages` builds requests and reads answers; `modelserve.client.policy` decides when to retry. No
other module uses httpx2's client.
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
from typing import Final, TypedDict
from urllib.parse import urlsplit

import httpx2

from modelserve.client.messages import OK, SHOWN, Call, Reply, check_status, problem_of, problem_text
from modelserve.client.policy import BUSY_STATUSES, Retries, Timeouts, Turns, retry_after_s
from modelserve.errors import BadRequest, ClientError, ServiceUnavailable, WrongAnswer

FOREIGN: Final = (
    httpx2.HTTPError,
    httpx2.InvalidURL,
    httpx2.CookieConflict,
    httpx2.StreamError,
    httpx2.SSEError,
    OSError,
)
"""All errors of httpx2 and of sockets, which `Exchange.send` reports as `ServiceUnavailable`."""

REFUSAL_BYTES: Final = 65_536
"""Maximum bytes read of a reply whose status is not 200."""

HEADERS: Final = MappingProxyType(
    # Ask for an uncompressed answer, so that the limit of its size holds for the bytes that are read.
    {"content-type": "application/json", "accept": "application/json", "accept-encoding": "identity"}
)
TOKEN: Final = re.compile(r"[!-~]+")


@dataclass(frozen=True, slots=True, kw_only=True)
class Surroundings:
    """The clocks, the sleep function and the random numbers of a client, which tests replace."""

    clock: Callable[[], float] = time.monotonic
    sleep: Callable[[float], Awaitable[None]] = asyncio.sleep
    now: Callable[[], datetime] = lambda: datetime.now(UTC)
    rng: random.Random = field(default_factory=random.Random)


class Options(TypedDict, total=False):
    """How a client connects, with the defaults of `Exchange`."""

    token: str | None
    ca_file: Path | None
    verify: bool
    timeouts: Timeouts | None
    retries: Retries | None
    surroundings: Surroundings | None
    transport: httpx2.AsyncBaseTransport | None


class Exchange:
    """Connections to a service at one or several addresses, which are tried in turn."""

    def __init__(
        self,
        addresses: Sequence[str],
        *,
        token: str | None = None,
        ca_file: Path | None = None,
        verify: bool = True,
        timeouts: Timeouts | None = None,
        retries: Retries | None = None,
        surroundings: Surroundings | None = None,
        transport: httpx2.AsyncBaseTransport | None = None,
    ) -> None:
        self.addresses = [checked_address(address) for address in addresses]
        if not self.addresses:
            raise BadRequest("client: found no address, expected at least one, as http://127.0.0.1:8080")
        self._timeouts, self._retries = timeouts or Timeouts(), retries or Retries()
        self._around = surroundings or Surroundings()
        self._first = 0
        self._token = (token or "").encode(errors="replace")
        # `trust_env=False`: ignore proxies and passwords in the environment, so that only the addresses get the token.
        self._http = httpx2.AsyncClient(
            headers={**HEADERS, **_authorization(token)},
            verify=_tls(self.addresses, ca_file, verify=verify),
            timeout=httpx2.Timeout(self._timeouts.answer_s, connect=self._timeouts.connect_s),
            limits=httpx2.Limits(max_connections=64, max_keepalive_connections=16, keepalive_expiry=4.0),
            follow_redirects=False,
            trust_env=False,
            transport=transport,
        )

    def deadline(self) -> float:
        """Return the time (of the monotonic clock) at which a call that starts now must give up."""
        return self._around.clock() + self._timeouts.total_s

    async def once(self, call: Call, *, address: int = 0) -> Reply:
        """Send a call once to one of the addresses and return the reply, whatever its status."""
        async with self._http.stream(
            call.method, self.addresses[address] + call.path, content=call.body, params=dict(call.params)
        ) as response:
            encoding = response.headers.get("content-encoding", "identity")
            if encoding != "identity":
                raise WrongAnswer(f"{call}: found an answer compressed as {encoding[:40]!r}, expected a plain one")
            answered = response.status_code in OK
            most_bytes = call.most_bytes if answered else REFUSAL_BYTES
            content = bytearray()
            async for chunk in response.aiter_bytes():
                content += chunk
                if len(content) > most_bytes:
                    break
            if answered and len(content) > most_bytes:
                raise WrongAnswer(f"{call}: found an answer of more than {most_bytes} bytes")
            if not answered and self._token:  # in case a refusal repeats it
                content = content.replace(self._token, b"***")
            return Reply(
                status=response.status_code, content=bytes(content), retry_after=response.headers.get("retry-after")
            )

    async def send(self, call: Call, deadline: float) -> bytes:
        """Send a call, retry it if it is repeatable, and return the body of the answer."""
        if self._http.is_closed:
            raise ClientError(f"{call}: found the client closed; expected calls before `close()` only")
        turns = Turns(addresses=len(self.addresses), first=self._first, retries=self._retries, rng=self._around.rng)
        last, tries = "its time was over before the first try", 0
        while (turn := turns.next()) is not None and max(turn[1], self._around.clock()) < deadline:
            address, free_at = turn
            if (wait := free_at - self._around.clock()) > 0.0:
                await self._around.sleep(wait)
            tries += 1
            outcome = await self._try(address, call, deadline)
            if isinstance(outcome, Reply) and self._is_final(call, outcome):
                self._first = address
                check_status(call, outcome)
                return outcome.content
            last = self._note(turns, address, outcome)
            if not call.repeatable:
                last += "; it is not sent again, and may have been done"
                break
        raise ServiceUnavailable(
            f"{call}: found no answer in {tries} tries at {', '.join(self.addresses)}; the last: {last}; "
            f"expected one within {self._timeouts.total_s:g} s; see that the service runs and is ready"
        )

    def _is_final(self, call: Call, reply: Reply) -> bool:
        return reply.status in call.expected or reply.status not in BUSY_STATUSES or not self._retries.busy

    async def _try(self, address: int, call: Call, deadline: float) -> Reply | str:
        """Send a call once; return the reply, or the reason why there is none as a text."""
        limit_s = min(self._timeouts.connect_s + self._timeouts.answer_s, deadline - self._around.clock())
        try:
            # httpx2 limits only each single read; this limits the whole try, with name look-up and slow answers.
            async with asyncio.timeout(limit_s):
                return await self.once(call, address=address)
        except TimeoutError:
            return f"{self.addresses[address]} did not answer within {limit_s:.3g} s"
        except FOREIGN as error:
            return f"{self.addresses[address]}: {type(error).__name__} {str(error)[:SHOWN]}".rstrip()

    def _note(self, turns: Turns, address: int, outcome: Reply | str) -> str:
        now = self._around.clock()
        if isinstance(outcome, str):
            turns.failed(address, now=now)
            return outcome
        rest_s = retry_after_s(outcome.retry_after, self._around.now())
        turns.failed(address, now=now, status=outcome.status, retry_after_s=rest_s)
        return f"{self.addresses[address]} replied {problem_text(outcome.status, problem_of(outcome))}"

    async def close(self) -> None:
        """Close the connections."""
        await self._http.aclose()


def checked_address(address: str) -> str:
    """Check the address of a service, and return it without the final slash.

    >>> checked_address("http://127.0.0.1:8080/")
    'http://127.0.0.1:8080'
    """
    try:
        parsed = urlsplit(address)
        named = bool(parsed.hostname) and parsed.port != 0
    except ValueError:
        parsed, named = urlsplit(""), False
    if parsed.scheme not in ("http", "https") or not named or parsed.query or parsed.fragment:
        raise BadRequest(
            f"client: found no address in {_without_password(address)!r}, expected one as http://127.0.0.1:8080"
        )
    if "@" in parsed.netloc:
        raise BadRequest("client: found a user name in the address, expected none; give a token instead")
    return address.rstrip("/")


def _without_password(address: str) -> str:
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
