"""The registry of all features, and the named feature sets that models are trained on.

`columns/` defines the features. Called by `features.build`, `features.contract` and by training, which chooses a set by
name.
"""

from collections.abc import Iterable, Mapping, Sequence
from difflib import get_close_matches
from typing import Final

from features.columns.feature import Feature, Load, Newest, Recent
from features.columns.load import LOAD
from features.columns.newest import NEWEST
from features.columns.recency import RECENCY
from features.columns.request import REQUEST
from features.errors import UnknownFeature

__all__ = ["FEATURES"]

FEATURES: Final[dict[str, Feature]] = {**REQUEST, **RECENCY, **LOAD, **NEWEST}
"""All features by name."""

_REQUEST: Final = tuple(name for name in REQUEST if name not in {"time_limit_s", "priority"})

_REACH: Final = {"like": (5, 20, 100, 300, 1000), "user": (20, 100), "group": (20, 100)}
"""Keys of the history features that models use, each with its window lengths in ended jobs."""
_WIDER: Final = {**_REACH, **dict.fromkeys(("vc", "gpus", "all"), (5, 20, 100, 300)), "vc_gpus": (20, 100)}
_UNSTEADY: Final = "vc"
"""Feature left out because trees overfit it and fail when the workload drifts."""


def _looks(reach: Mapping[str, Sequence[int]]) -> tuple[str, ...]:
    return tuple(name for name, feature in FEATURES.items() if _within(feature, reach))


def _within(feature: Feature, reach: Mapping[str, Sequence[int]]) -> bool:
    match feature.source:
        case Recent(events="ended", key=key, last=last):
            return last in reach.get(key, ())
        case Newest(key=key):
            # Statistics of single submissions exist only for similar jobs, the virtual cluster and the whole cluster.
            return key in reach and key in {"like", "vc", "all"}
        case Load(key=key):
            return key in reach
        case _:
            return False


def _steady(name: str) -> bool:
    """Return whether a feature is stable when load changes; raw counts are not, except bursts and running jobs."""
    feature = FEATURES[name]
    timely = feature.unit in {"s", "log s", "log ratio", "fraction"} or name.endswith("_running_jobs")
    return timely or isinstance(feature.source, Newest)


_SUBMIT: Final = (
    *(name for name in _REQUEST if name != _UNSTEADY),
    *(name for name in _looks(_REACH) if _steady(name)),
)
_USE: Final = tuple(
    name
    for name, feature in FEATURES.items()
    if isinstance(feature.source, Recent) and feature.source.events == "measured" and feature.source.key in _REACH
)

FEATURE_SETS: Final[dict[str, tuple[str, ...]]] = {
    "request": _REQUEST,
    "submit": _SUBMIT,
    "wide": (*_REQUEST, *_looks(_WIDER)),
    "usage": (*_SUBMIT, *_USE),
}
"""Feature sets by name.

- `request`: features of the job's own row, without history.
- `submit`: the features of run-time models.
- `wide`: also raw counts and more keys; for comparison in studies.
- `usage`: `submit` and the measured use of earlier jobs; the features of usage models.
"""


def named(names: str | Iterable[str]) -> Sequence[str]:
    """Return the feature names in a set, or the given names after checking that all exist.

    Raises
    ------
    UnknownFeature
        If the set, or one of the names, is unknown; the message lists near matches.

    Examples
    --------
    >>> named("request")[0]
    'req_cpu_cores'
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
