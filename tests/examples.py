"""How many examples a property test draws: a few in `make test`, all of them elsewhere."""

from hypothesis import settings

QUICK = "quick"
"""The profile of `make test`; see `tests/conftest.py`."""

FEW = 5
"""Maximum number of examples in `make test`; `make test-slow` draws all of them."""


def examples(count: int) -> int:
    """Return the number of examples to draw under the loaded profile, of a test that draws `count` when run in full."""
    return min(count, FEW) if settings.get_current_profile_name() == QUICK else count
