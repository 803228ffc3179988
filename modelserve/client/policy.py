"""How long a call may take, and when and where it is tried again.

No I/O: the clock and the random draws come in as arguments. Called by `modelserve.client.exchange`.
"""

import random
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from typing import Final

from modelserve.errors import BadRequest

BUSY_STATUSES: Final = frozenset({429, 502, 503, 504})
"""What a service says that may answer the same call a little later."""

JOBS_PER_CALL: Final = 1_000
"""How many jobs go into one call: a second's work for a service, which others wait for no longer, and which is lost
with a connection."""

TOO_MANY_CALLS: Final = 429
"""Said to the caller, whichever replica says it: the others are left alone as well."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Timeouts:
    """Seconds to a connection, to one try's answer once connected, and to the end of a method with all its tries."""

    connect_s: float = 1.0
    answer_s: float = 10.0
    total_s: float = 30.0

    def __post_init__(self) -> None:
        for name in ("connect_s", "answer_s", "total_s"):
            if not 0.0 < getattr(self, name) <= 86_400.0:
                raise BadRequest(f"timeouts: found {name}={getattr(self, name)!r}, expected seconds up to a day")


@dataclass(frozen=True, slots=True, kw_only=True)
class Retries:
    """How often a call that changes nothing is tried at each address, and how the waits between tries grow.

    Before try n of an address lies a wait drawn from 0 to `first_wait_s * 2**(n - 1)`, at most `longest_wait_s`.
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
    """Which of several addresses is tried next, and from when on; one object lives as long as one call."""

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
        """Return the address to try and the clock's reading before which it is not to be tried; None when all is tried.

        The address that is free soonest comes first; among equals, those after the one that answered last time.
        """
        left = [i for i in range(self.addresses) if self._failures[i] < self.retries.tries]
        if not left:
            return None
        chosen = min(left, key=lambda i: (self._free_at[i], (i - self.first) % self.addresses))
        return chosen, self._free_at[chosen]

    def failed(self, address: int, *, now: float, status: int | None = None, retry_after_s: float = 0.0) -> None:
        """Take note that an address failed at `now`, what it said, and how long it asked to be left alone."""
        self._failures[address] += 1
        free_at = now + retry_after_s + self.retries.wait_s(self._failures[address], self.rng.random())
        told: Sequence[int] = range(self.addresses) if status == TOO_MANY_CALLS else (address,)
        for i in told:
            self._free_at[i] = max(self._free_at[i], free_at)


def retry_after_s(said: str | None, now: datetime) -> float:
    """Return the seconds that a `Retry-After` asks for: a number or a date; 0 when absent, past or unreadable.

    Examples
    --------
    >>> noon = datetime(2026, 11, 20, 12, tzinfo=UTC)
    >>> retry_after_s("7", noon), retry_after_s("Fri, 20 Nov 2026 12:00:05 GMT", noon), retry_after_s("soon", noon)
    (7.0, 5.0, 0.0)
    """
    text = (said or "").strip()
    if text.isascii() and text.isdecimal():
        return float(text[:9])
    try:
        at = parsedate_to_datetime(text)
    except ValueError:
        return 0.0
    if at.tzinfo is None:
        at = at.replace(tzinfo=UTC)
    return max((at - now).total_seconds(), 0.0)
