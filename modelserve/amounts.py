"""When a job counts as shrunk, and when its allocation may have held its use down.

Light, since collectors beside a cluster use it, too.
"""

from typing import Final

__all__ = ["SLACK", "is_below", "is_capped"]

SLACK: Final = 1e-6
"""Maximum relative difference at which an allocation counts as equal to the request."""
UNCAPPED: Final = 0.9
"""Share of an allocation below which use was not held down by it."""


def is_below(allocated: float | None, requested: float | None) -> bool:
    """Return whether less was allocated than requested (by more than `SLACK`); False if either is unknown."""
    return allocated is not None and requested is not None and allocated < requested * (1.0 - SLACK)


def is_capped(used: float, allocated: float | None) -> bool:
    """Return whether an allocation may have held use down, so that the use does not show what the job needs."""
    return allocated is None or used >= UNCAPPED * allocated
