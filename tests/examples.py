"""How many examples a property test draws: a quarter of its number in `make test`, all of them elsewhere."""

from hypothesis import settings

QUICK = "quick"
"""The profile of `make test`; see `tests/conftest.py`."""

FEWEST = 5


def examples(count: int) -> int:
    """Return the number of examples to draw under the loaded profile, of a test that draws `count` when run in full."""
    return max(count // 4, min(count, FEWEST)) if settings.get_current_profile_name() == QUICK else count
