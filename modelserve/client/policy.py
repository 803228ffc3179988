"""Decide when calls are sent: timeouts, retries at several addresses, and a circuit breaker.

This module does no I/O; clock and random numbers are arguments.
"""

import random
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from typing import Final, Literal

from modelserve.errors import BadRequest

__all__ = ["Breaker", "Retries", "Timeouts"]

BUSY_STATUSES: Final = frozenset({429, 502, 503, 504})
"""HTTP statuses after which the same call may succeed a little later."""

JOBS_PER_CALL: Final = 1_000
"""Default number of jobs in one call: about a second of work for the service.

Other callers wait for at most that long, and a lost connection loses no more work.
"""

TOO_MANY_CALLS: Final = 429
"""Status of a caller that exceeds its rate. It applies to all replicas, so the client pauses at all addresses."""

State = Literal["closed", "open", "half_open"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Timeouts:
    """Maximum seconds: to connect, for the response of one try once connected, and for a method with all its tries."""

    connect_s: float = 1.0
    answer_s: float = 10.0
    total_s: float = 30.0

    def __post_init__(self) -> None:
        for name in ("connect_s", "answer_s", "total_s"):
            if not 0.0 < getattr(self, name) <= 86_400.0:
                raise BadRequest(f"timeouts: found {name}={getattr(self, name)!r}, expected seconds up to a day")


@dataclass(frozen=True, slots=True, kw_only=True)
class Retries:
    """The number of tries of a repeatable call at each address, and the waits between the tries.

    After the n-th failure at an address, the wait is drawn from 0 to `first_wait_s * 2**(n - 1)`, but at most to
    `longest_wait_s`. If not `busy`, a reply that the service is busy is not tried again.
    """

    tries: int = 4
    first_wait_s: float = 0.1
    longest_wait_s: float = 2.0
    busy: bool = True

    def __post_init__(self) -> None:
        if not (1 <= self.tries <= 100 and 0.0 <= self.first_wait_s <= self.longest_wait_s <= 3600.0):
            raise BadRequest(f"retries: found {self!r}, expected 1 to 100 tries and waits up to an hour, in order")

    def wait_s(self, failures: int, drawn: float) -> float:
        """Return the seconds to wait after `failures` failures in a row; `drawn` is a random number in [0, 1).

        >>> [Retries().wait_s(failures, 0.5) for failures in (1, 2, 3, 9)]
        [0.05, 0.1, 0.2, 1.0]
        """
        return drawn * min(self.longest_wait_s, self.first_wait_s * 2.0 ** min(failures - 1, 60))


@dataclass(slots=True, kw_only=True)
class Turns:
    """The order and the times of the tries of one call at several addresses.

    `addresses` is their number; `first` is the index of the address to try first.
    """

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
        """Return the index of the next address and the earliest time to try it; None when all tries are used.

        The address that may be tried soonest is next; among equals, the first in order from `first` on.
        """
        left = [i for i in range(self.addresses) if self._failures[i] < self.retries.tries]
        if not left:
            return None
        chosen = min(left, key=lambda i: (self._free_at[i], (i - self.first) % self.addresses))
        return chosen, self._free_at[chosen]

    def failed(self, address: int, *, now: float, status: int | None = None, retry_after_s: float = 0.0) -> None:
        """Record a failure of an address at `now`: its HTTP status, and the pause that its `Retry-After` requests."""
        self._failures[address] += 1
        free_at = now + retry_after_s + self.retries.wait_s(self._failures[address], self.rng.random())
        resting: Sequence[int] = range(self.addresses) if status == TOO_MANY_CALLS else (address,)
        for i in resting:
            self._free_at[i] = max(self._free_at[i], free_at)


def retry_after_s(header: str | None, now: datetime) -> float:
    """Return the seconds to wait by a `Retry-After` header (a number or a date); 0 if absent, past or unreadable.

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

    Safe from several threads. If the caller of the trial never reports a result, others wait for one cool-down only.

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

    def __init__(self, *, failures: int = 3, cool_down_s: float = 5.0, clock: Callable[[], float]) -> None:
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
        """The current state: closed (calls are sent), open (not sent), or half open (one trial call)."""
        if self._rests_until_s is None:
            return "closed"
        return "open" if self._clock() < self._rests_until_s else "half_open"

    @property
    def rest_s(self) -> float:
        """Seconds until the next call is admitted."""
        return 0.0 if self._rests_until_s is None else max(self._rests_until_s - self._clock(), 0.0)

    def admits(self) -> bool:
        """Return whether a call may be sent now; if so, the caller then reports `succeeded` or `failed`."""
        with self._lock:
            state = self.state
            if state == "half_open":
                self._rest()  # other callers wait for the result of this trial call
            return state != "open"

    def succeeded(self) -> None:
        """Record that a call succeeded."""
        with self._lock:
            self._failed_in_a_row, self._rests_until_s = 0, None

    def failed(self) -> None:
        """Record that a call failed."""
        with self._lock:
            self._failed_in_a_row += 1
            if self._failed_in_a_row >= self.failures:
                self._rest()

    def _rest(self) -> None:
        self._rests_until_s = self._clock() + self.cool_down_s
