"""Write responses: convert recommendations to dicts with the keys of the contract, and dicts to JSON.

The pydantic models of the contract are not used here, because validation would slow down every call. Tests validate
the written responses with these models.
"""

import math
from collections.abc import Mapping
from datetime import UTC, datetime
from functools import lru_cache
from typing import Final

from pydantic_core import to_json

from modelserve.bundle.predictor import Sources
from scheduler_core.types import RESOURCES, Reason, Recommendation, Request

__all__ = ["Values", "answer_of", "flat", "known", "moment", "written"]

Values = dict[str, object]

NOISE: Final = 1e-12
"""Maximum relative excess over a six-decimal number that counts as floating-point noise and is not rounded up."""


def written(answer: object) -> bytes:
    """Return a response as JSON bytes; NaN and infinities become null.

    Examples
    --------
    >>> written({"p50": 1.5, "p90": float("nan")})
    b'{"p50":1.5,"p90":null}'
    """
    return to_json(answer, inf_nan_mode="null")


def known(value: float) -> float | None:
    """Return a number, or None if it is not finite."""
    return float(value) if math.isfinite(value) else None


@lru_cache(maxsize=1024)  # the few models have few distinct times
def moment(at: datetime) -> str:
    """Return a time as text in UTC, in the format of the responses.

    Examples
    --------
    >>> from datetime import timedelta, timezone
    >>> moment(datetime(2026, 11, 20, 11, tzinfo=timezone(timedelta(hours=8))))
    '2026-11-20T03:00:00Z'
    """
    return at.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def answer_of(found: Recommendation, sources: Sources) -> Values:
    """Return a recommendation as a dict with keys of `contract.jobs.Recommended`.

    Unknown values are None. Recommended amounts are rounded up (`rounded_up`).
    """
    asked = found.request
    return {
        "job_id": found.job_id,
        "request": _amounts(asked.row()),
        "target": _amounts(rounded_up(found.target, asked)),
        "lower_bound": _amounts(rounded_up(found.lower_bound, asked)),
        "run_time_s": {"p50": known(found.run_time_p50_s), "p90": known(found.run_time_p90_s)},
        "run_time_change": known(found.run_time_change),
        "reasons": {name: str(found.reasons[name]) if name in found.reasons else None for name in RESOURCES},
        "models": {"run_time": sources.run_time, "usage": sources.usage},
        "history": None if sources.history is None else moment(sources.history),
        "measured_runs": found.runs,
        "raise_to": _amounts(found.raise_to.row()),
        "note": _note(found, sources),
    }


def _note(found: Recommendation, sources: Sources) -> str | None:
    """Return the error of a failed predictor, or why nothing is known about a job or a resource."""
    unmeasured = [_MEASURED[name] for name, reason in found.reasons.items() if reason == Reason.NOT_MEASURED]
    if found.note or (unmeasured and Reason.COLD_START not in found.reasons.values()):
        return found.note or f"not measured in similar jobs: {', '.join(unmeasured)}"
    if Reason.COLD_START not in found.reasons.values():
        return None
    missing = [kind for kind, name in (("run-time", sources.run_time), ("usage", sources.usage)) if name is None]
    if missing:
        return f"no {' and no '.join(missing)} model of this trace and task type"
    return f"{found.runs} measured runs of similar jobs: too few for a bound"


def rounded_up(amounts: Request, asked: Request) -> tuple[float, float, float]:
    """Return amounts rounded up to six decimals, at most the request; floating-point noise is not rounded up.

    Examples
    --------
    >>> six = Request(cpu_cores=6.0, mem_gib=29.3, gpus=0.5)
    >>> rounded_up(Request(cpu_cores=3.3000000000000003, mem_gib=13.89876543, gpus=0.5), six)
    (3.3, 13.898766, 0.5)
    """
    cpu_cores, mem_gib, gpus = map(_up, amounts.row(), asked.row())
    return cpu_cores, mem_gib, gpus


def _up(value: float, asked: float) -> float:
    if value >= asked or not math.isfinite(value):
        return value
    nearest = round(value, 6)
    rounded = nearest if nearest >= value * (1.0 - NOISE) else math.ceil(value * 1e6) / 1e6
    return min(rounded, asked)


def flat(answer: Mapping[str, object]) -> Values:
    """Return a response as one flat table row with keys such as `cpu_cores`, `cpu_cores_target`, `cpu_cores_reason`.

    Examples
    --------
    >>> flat({"job_id": "a1", "models": {"usage": None}, "history": None})
    {'job_id': 'a1', 'models_usage': None, 'history': None}
    """
    row: Values = {}
    for key, value in answer.items():
        if not isinstance(value, Mapping):
            row[key] = value
        elif key in _PER_RESOURCE:
            row |= {f"{resource}{_PER_RESOURCE[key]}": part for resource, part in value.items()}
        else:
            row |= {f"{key}_{part}": inner for part, inner in value.items()}
    return row


_MEASURED: Final = {"cpu_cores": "CPU use", "mem_gib": "peak memory", "gpus": "GPU use or GPU memory"}
_PER_RESOURCE: Final[Mapping[str, str]] = {
    "request": "",
    "target": "_target",
    "lower_bound": "_lower_bound",
    "raise_to": "_raise_to",
    "reasons": "_reason",
}


def _amounts(row: tuple[float, float, float]) -> dict[str, float | None]:
    return {name: known(value) for name, value in zip(RESOURCES, row, strict=True)}
