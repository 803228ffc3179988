"""When a job counts as shrunk, and when its allocation may have limited its use.

It imports little, because collectors beside a cluster use it, too.
"""

from typing import Final

__all__ = ["SLACK", "is_below", "is_capped"]

SLACK: Final = 1e-6
"""Maximum relative difference at which an allocation counts as equal to the request."""
UNCAPPED: Final = 0.9
"""Share of an allocation below which the allocation did not limit the use."""


def is_below(allocated: float | None, requested: float | None) -> bool:
    """Return whether the allocation is below the request by more than `SLACK`; False if either is unknown."""
    return allocated is not None and requested is not None and allocated < requested * (1.0 - SLACK)


def is_capped(used: float, allocated: float | None) -> bool:
    """Return whether an allocation may have limited the use, so that the use does not show what the job needs."""
    return allocated is None or used >= UNCAPPED * allocated
