"""When calls are sent and when not: timeouts, retries over several addresses, and a circuit breaker.

No I/O: clock and random numbers are arguments. Called by `modelserve.client.exchange` and
`modelserve.client.http_scale`.
"""

import random
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from typing import Final, Literal

from modelserve.errors import BadRequest

BUSY_STATUSES: Final = frozenset({429, 502, 503, 504})
"""Statuses after which the same call may succeed a little later."""

JOBS_PER_CALL: Final = 1_000
"""Jobs in one call: about a second of work for a service. Other callers wait no longer than that, and a lost connection
loses no more."""

TOO_MANY_CALLS: Final = 429
"""This status concerns the caller, whichever replica replies it: all addresses rest."""

LONGEST_REST_S: Final = 300.0
"""Longest rest that a `Retry-After` can cause: a wrong value must not switch predictions off for good."""

State = Literal["closed", "open", "half_open"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Timeouts:
    """Seconds to connect, to answer one try once connected, and in total for a method with all its tries."""

    connect_s: float = 1.0
    answer_s: float = 10.0
    total_s: float = 30.0

    def __post_init__(self) -> None:
        for name in ("connect_s", "answer_s", "total_s"):
            if not 0.0 < getattr(self, name) <= 86_400.0:
                raise BadRequest(f"timeouts: found {name}={getattr(self, name)!r}, expected seconds up to a day")


@dataclass(frozen=True, slots=True, kw_only=True)
class Retries:
    """The number of tries of a repeatable call at each address, and the waits between them.

    The wait before try n of an address is drawn from 0 to `first_wait_s * 2**(n - 1)`, at most `longest_wait_s`.
    """

    tries: int = 4
    first_wait_s: float = 0.1
    longest_wait_s: float = 2.0

    def __post_init__(self) -> None:
        if not (1 <= self.tries <= 100 and 0.0 <= self.first_wait_s <= self.longest_wait_s <= 3600.0):
            raise BadRequest(f"retries: found {self!r}, expected 1 to 100 tries and waits up to an hour, in order")

    def wait_s(self, failures: int, drawn: float) -> float:
        """Return the wait after the `failures`-th failure in a row; `drawn` lies in [0, 1).

        Examples
        --------
        >>> [Retries().wait_s(failures, 0.5) for failures in (1, 2, 3, 9)]
        [0.05, 0.1, 0.2, 1.0]
        """
        return drawn * min(self.longest_wait_s, self.first_wait_s * 2.0 ** min(failures - 1, 60))


@dataclass(slots=True, kw_only=True)
class Turns:
    """The order in which addresses are tried, and from when on; one object serves one call."""

    addresses: int
    first: int
    retries: Retries
    rng: random.Random
    _failures: list[int] = field(init=False)
    _free_at: list[float] = field(init=False)

    def __post_init__(self) -> None:
        self._failures = [0] * self.addresses
        self._free_at = [0.0] * self.addresses

    def next(self) -> tuple[int, float] | None:
        """Return the next address and the clock reading before which to wait; None when all tries are used.

        The address that is free soonest comes first; among equals, those after the one that answered last time.
        """
        left = [i for i in range(self.addresses) if self._failures[i] < self.retries.tries]
        if not left:
            return None
        chosen = min(left, key=lambda i: (self._free_at[i], (i - self.first) % self.addresses))
        return chosen, self._free_at[chosen]

    def failed(self, address: int, *, now: float, status: int | None = None, retry_after_s: float = 0.0) -> None:
        """Record a failure of an address at `now`, its status, and the rest it requested."""
        self._failures[address] += 1
        free_at = now + retry_after_s + self.retries.wait_s(self._failures[address], self.rng.random())
        resting: Sequence[int] = range(self.addresses) if status == TOO_MANY_CALLS else (address,)
        for i in resting:
            self._free_at[i] = max(self._free_at[i], free_at)


def retry_after_s(header: str | None, now: datetime) -> float:
    """Return the seconds of a `Retry-After` header, a number or a date; 0 if absent, past or unreadable.

    Examples
    --------
    >>> noon = datetime(2026, 11, 20, 12, tzinfo=UTC)
    >>> retry_after_s("7", noon), retry_after_s("Fri, 20 Nov 2026 12:00:05 GMT", noon), retry_after_s("soon", noon)
    (7.0, 5.0, 0.0)
    """
    text = (header or "").strip()
    if text.isascii() and text.isdecimal():
        return float(text[:9])
    try:
        at = parsedate_to_datetime(text)
    except ValueError:
        return 0.0
    if at.tzinfo is None:
        at = at.replace(tzinfo=UTC)
    return max((at - now).total_seconds(), 0.0)


class Breaker:
    """A circuit breaker that opens after `failures` failures in a row and admits one trial call after `cool_down_s`.

    Safe from several threads. An admitted caller that never reports blocks the others for one cool-down only.

    Examples
    --------
    >>> now = [0.0]
    >>> breaker = Breaker(failures=2, cool_down_s=30.0, clock=lambda: now[0])
    >>> breaker.failed()
    >>> breaker.failed()
    >>> breaker.state, breaker.admits()
    ('open', False)
    >>> now[0] = 30.0
    >>> breaker.state, breaker.admits(), breaker.admits()
    ('half_open', True, False)
    >>> breaker.succeeded()
    >>> breaker.state
    'closed'
    """

    def __init__(self, *, failures: int = 3, cool_down_s: float = 30.0, clock: Callable[[], float]) -> None:
        if failures < 1 or not 0.0 < cool_down_s < float("inf"):
            raise BadRequest(
                f"breaker: found failures={failures}, cool_down_s={cool_down_s}; expected at least 1, and seconds"
            )
        self.failures, self.cool_down_s = failures, cool_down_s
        self._clock = clock
        self._lock = threading.Lock()
        self._failed_in_a_row = 0
        self._rests_until_s: float | None = None

    @property
    def state(self) -> State:
        """Return the current state."""
        if self._rests_until_s is None:
            return "closed"
        return "open" if self._clock() < self._rests_until_s else "half_open"

    @property
    def rest_s(self) -> float:
        """Return the seconds until the next call is admitted."""
        return 0.0 if self._rests_until_s is None else max(self._rests_until_s - self._clock(), 0.0)

    def admits(self) -> bool:
        """Return whether a call may be sent now; an admitted caller reports `succeeded` or `failed`."""
        with self._lock:
            state = self.state
            if state == "half_open":
                self._rest(self.cool_down_s)  # the others wait for the result of this call
            return state != "open"

    def succeeded(self) -> None:
        """Record an answer."""
        with self._lock:
            self._failed_in_a_row, self._rests_until_s = 0, None

    def failed(self, *, asked_rest_s: float = 0.0) -> None:
        """Record a failure; a requested rest (`Retry-After`) is granted at once."""
        with self._lock:
            self._failed_in_a_row += 1
            if self._failed_in_a_row >= self.failures:
                self._rest(max(self.cool_down_s, min(asked_rest_s, LONGEST_REST_S)))
            elif asked_rest_s > 0.0:
                self._rest(min(asked_rest_s, LONGEST_REST_S))

    def _rest(self, seconds: float) -> None:
        self._rests_until_s = self._clock() + seconds
