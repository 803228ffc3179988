"""A circuit breaker: whether something that keeps failing is asked again yet.

It neither asks nor waits; the clock comes in as an argument. Called by `modelserve.client.http_scale`.
"""

import threading
from collections.abc import Callable
from typing import Final, Literal

from scheduler_core.errors import BadInput

LONGEST_REST_S: Final = 300.0
"""Longest that a service may ask to be left alone; a stranger's number does not switch the predictions off for good."""

State = Literal["closed", "open", "half_open"]


class Breaker:
    """Opens after `failures` failures in a row; after `cool_down_s` seconds one caller may try, and decides.

    Safe from several threads. A caller that was admitted and never reports keeps the others out for a cool-down only.

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
            raise BadInput(
                f"breaker: found failures={failures}, cool_down_s={cool_down_s}; expected at least 1, and seconds"
            )
        self.failures, self.cool_down_s = failures, cool_down_s
        self._clock = clock
        self._lock = threading.Lock()
        self._failed_in_a_row = 0
        self._rests_until_s: float | None = None

    @property
    def state(self) -> State:
        """Return how it stands now."""
        if self._rests_until_s is None:
            return "closed"
        return "open" if self._clock() < self._rests_until_s else "half_open"

    @property
    def rest_s(self) -> float:
        """Return how long nobody is admitted from now on."""
        return 0.0 if self._rests_until_s is None else max(self._rests_until_s - self._clock(), 0.0)

    def admits(self) -> bool:
        """Tell whether the caller may ask now; whoever is admitted reports `succeeded` or `failed`."""
        with self._lock:
            state = self.state
            if state == "half_open":
                self._rest(self.cool_down_s)  # the others wait for what this one finds
            return state != "open"

    def succeeded(self) -> None:
        """Take note of an answer."""
        with self._lock:
            self._failed_in_a_row, self._rests_until_s = 0, None

    def failed(self, *, asked_rest_s: float = 0.0) -> None:
        """Take note of a failure; one that asked to be left alone (`Retry-After`) is, at once."""
        with self._lock:
            self._failed_in_a_row += 1
            if self._failed_in_a_row >= self.failures:
                self._rest(max(self.cool_down_s, min(asked_rest_s, LONGEST_REST_S)))
            elif asked_rest_s > 0.0:
                self._rest(min(asked_rest_s, LONGEST_REST_S))

    def _rest(self, seconds: float) -> None:
        self._rests_until_s = self._clock() + seconds
