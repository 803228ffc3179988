"""Rates: how many calls a second one token may make in one worker.

A bucket that fills with time and is emptied by calls; nothing is shared between workers. Called by the gate.
"""

import math
from collections.abc import Callable
from typing import Final

from modelserve.api.problems import Refusal

BURST_S: Final = 1.0
"""How long a token may save up calls."""


class Rates:
    """The buckets of one worker, by the caller's name; names come from the settings, so there are only so many."""

    def __init__(self, calls_per_s: float | None, *, clock: Callable[[], float]) -> None:
        self._calls_per_s, self._clock = calls_per_s, clock
        self._buckets: dict[str, tuple[float, float]] = {}

    def take(self, name: str) -> None:
        """Count a call of `name`.

        Raises
        ------
        Refusal
            It calls too often (429).
        """
        rate = self._calls_per_s
        if rate is None:
            return
        room = max(1.0, rate * BURST_S)
        now_s = self._clock()
        left, at_s = self._buckets.get(name, (room, now_s))
        left = min(room, left + max(0.0, now_s - at_s) * rate)
        if left < 1.0:
            self._buckets[name] = (left, now_s)
            wait_s = max(1, math.ceil((1.0 - left) / rate))
            raise Refusal(
                429, f"more than {rate:g} calls a second; wait {wait_s} s", headers={"retry-after": str(wait_s)}
            )
        self._buckets[name] = (left - 1.0, now_s)
