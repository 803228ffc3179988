"""The registry of all features, and the named sets that models are trained on.

Names only; each feature is defined in `columns/`.
Called by `features.build`, `features.contract` and by training, which chooses a set by name.
"""

from collections.abc import Iterable, Sequence
from difflib import get_close_matches
from typing import Final

from features.columns.calendar import CALENDAR
from features.columns.feature import Feature, Recent
from features.columns.load import LOAD
from features.columns.measured import MEASURED
from features.columns.recency import RECENCY
from features.columns.request import REQUEST
from features.errors import UnknownFeature

FEATURES: Final[dict[str, Feature]] = {**REQUEST, **CALENDAR, **RECENCY, **LOAD, **MEASURED}
"""Every feature by name."""

_ENDED: Final = tuple(
    name for name, f in RECENCY.items() if isinstance(f.source, Recent) and f.source.events == "ended"
)
_MEASURED_USE: Final = tuple(name for name in RECENCY if name not in frozenset(_ENDED))
_REQUEST: Final = tuple(name for name in REQUEST if name not in {"time_limit_s", "priority"})

FEATURE_SETS: Final[dict[str, tuple[str, ...]]] = {
    "paper": tuple(MEASURED),
    "request": (*_REQUEST, *CALENDAR),
    "submit": (*_REQUEST, *CALENDAR, *_ENDED, *LOAD),
    "usage": (*_REQUEST, *CALENDAR, *_ENDED, *LOAD, *_MEASURED_USE),
}
"""Feature sets by name.

`paper` is measured during the run; `submit` is what is known at submission; `usage` adds the history of use to it;
`request` is `submit` without history.
"""


def named(names: str | Iterable[str]) -> Sequence[str]:
    """Return the names of a feature set, or the names given, checked.

    Raises
    ------
    UnknownFeature
        If the set, or one of the names, is in no registry; the message lists near matches.

    Examples
    --------
    >>> named("paper")[0]
    'measured_cpu_cores'
    """
    if isinstance(names, str):
        if names not in FEATURE_SETS:
            raise UnknownFeature(f"found no feature set {names!r}; expected one of {', '.join(FEATURE_SETS)}")
        return FEATURE_SETS[names]
    listed = tuple(names)
    for name in listed:
        if name not in FEATURES:
            near = ", ".join(get_close_matches(name, FEATURES, n=3)) or "none is near"
            raise UnknownFeature(f"found no feature {name!r}; expected a name in FEATURES; near matches: {near}")
    return listed
