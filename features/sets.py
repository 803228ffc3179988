"""The registry of all features, and the named feature sets that models are trained on."""

from collections.abc import Iterable, Sequence
from difflib import get_close_matches
from typing import Final

from features.columns.feature import Feature, Load, Newest, Recent
from features.columns.load import LOAD
from features.columns.newest import NEWEST
from features.columns.recency import NETWORK, RECENCY
from features.columns.request import REQUEST
from features.errors import UnknownFeature
from features.history import REQUEST_COLUMNS
from features.keys import LIKE

__all__ = ["FEATURES"]

FEATURES: Final[dict[str, Feature]] = {**REQUEST, **RECENCY, **LOAD, **NEWEST}
"""All features by name."""

_REQUEST: Final = tuple(REQUEST)
_REACH: Final = {"like": (5, 20, 100, 300, 1000), "user": (20, 100), "group": (20, 100)}
"""Keys of the history features that models use, each with its window lengths in ended jobs."""
_UNSTEADY: Final = "vc"
"""Feature left out because trees overfit it and fail when the workload drifts."""


def _submitted(name: str) -> bool:
    """Return whether run-time models use a feature: request and history of the keys in `_REACH`, stable under load."""
    match FEATURES[name].source:
        case Recent(events="ended", key=key, last=last):
            return last in _REACH.get(key, ()) and FEATURES[name].unit != "count"
        case Newest(key=key):
            return key == LIKE
        case Load(key=key):
            return key in _REACH
        case _:
            return name in _REQUEST and name != _UNSTEADY


_SUBMIT: Final = tuple(name for name in FEATURES if _submitted(name))
_USE: Final = tuple(
    name
    for name, feature in FEATURES.items()
    if isinstance(feature.source, Recent) and feature.source.events == "measured" and feature.source.key in _REACH
    if feature.source.column != NETWORK
)
_SIMILAR: Final = tuple(
    f"{key}_{used}_p50_20" for key in ("group_role", "user") for used in (NETWORK, "gpu_mem_max_gib")
)

FEATURE_SETS: Final[dict[str, tuple[str, ...]]] = {
    "request": _REQUEST,
    "submit": _SUBMIT,
    "usage": (*_SUBMIT, *_USE),
    "response": (*REQUEST_COLUMNS, *_SIMILAR),
}
"""Feature sets by name.

- `request`: features of the job's own row, without history.
- `submit`: the features of run-time models.
- `usage`: `submit` and the measured use of earlier jobs; the features of usage models.
- `response`: the request, then the network traffic and GPU memory of the group's and of the user's earlier jobs; the
  features of response models.
"""


def named(names: str | Iterable[str]) -> Sequence[str]:
    """Return the feature names in a set, or the given names after checking that all exist."""
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
