"""The registry of all features, and the named sets that models are trained on.

Names only; each feature is defined in `columns/`.
Called by `features.build`, `features.contract` and by training, which chooses a set by name.
"""

from collections.abc import Iterable, Sequence
from difflib import get_close_matches
from typing import Final

from features.columns.calendar import CALENDAR
from features.columns.feature import Feature, Load, Newest, Recent
from features.columns.load import LOAD
from features.columns.measured import MEASURED
from features.columns.newest import NEWEST
from features.columns.recency import RECENCY
from features.columns.request import REQUEST
from features.errors import UnknownFeature
from features.keys import LIKE

FEATURES: Final[dict[str, Feature]] = {**REQUEST, **CALENDAR, **RECENCY, **LOAD, **NEWEST, **MEASURED}
"""Every feature by name."""

_REQUEST: Final = tuple(name for name in REQUEST if name not in {"time_limit_s", "priority"})

_DEEP: Final = frozenset({"like", "vc", "gpus", "all"})
"""The keys that a model sees through every window; of the others it sees the last 20 and 100."""
_WIDE: Final = frozenset({"user", "group", "vc_gpus"})
_NEAR: Final = frozenset({"like", "vc", "all"})
"""The keys whose newest submissions a model sees one by one."""


def _served(feature: Feature) -> bool:
    match feature.source:
        case Recent(events="ended", key=key, last=last):
            return key in _DEEP or (key in _WIDE and last in (20, 100))
        case Newest(key=key):
            return key in _NEAR
        case source:
            return isinstance(source, Load)


def _of_use(feature: Feature) -> bool:
    source = feature.source
    return isinstance(source, Recent) and source.events == "measured" and source.key in _DEEP | _WIDE


def _steady(feature: Feature) -> bool:
    """Tell whether a feature is a time or a share, or counts a burst or what runs: raw counts drift with the load."""
    timely = feature.unit in {"s", "log s", "log ratio", "fraction"} or feature.name.endswith("_running_jobs")
    return _served(feature) and (timely or isinstance(feature.source, Newest))


def _of_like(feature: Feature) -> bool:
    source = feature.source
    return isinstance(source, Recent | Load | Newest) and source.key == LIKE and _steady(feature)


_LOOKS: Final = tuple(name for name, feature in FEATURES.items() if _served(feature))
_USE: Final = tuple(name for name, feature in FEATURES.items() if _of_use(feature))

FEATURE_SETS: Final[dict[str, tuple[str, ...]]] = {
    "paper": tuple(MEASURED),
    "request": (*_REQUEST, *CALENDAR),
    "submit": (*_REQUEST, *CALENDAR, *_LOOKS),
    "steady": (*(n for n in _REQUEST if FEATURES[n].kind == "q"), *(n for n in _LOOKS if _steady(FEATURES[n]))),
    "like": ("req_gpus", "total_gpus", *(name for name in _LOOKS if _of_like(FEATURES[name]))),
    "usage": (*_REQUEST, *CALENDAR, *_LOOKS, *_USE),
}
"""Feature sets by name.

`paper` is measured during the run; `submit` is what is known at submission; `request` is `submit` without history;
`steady` is `submit` without what drifts (calendar, names, raw counts), `like` is of that only the history of like jobs
and the GPUs; `usage` adds the history of use to `submit`.
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
