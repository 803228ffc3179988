"""The statistics of the running jobs of one call, and the form in which the log keeps them: without any sample.

Made by `measured` from a call, or by `read_logged` from the log. Called by the service, `modelserve.calls.reservations`
and `modelserve.calls.replay`.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, fields
from typing import Final

import numpy as np
from pydantic import BaseModel, ConfigDict, ValidationError
from pydantic_core import to_json

from modelserve.bundle.card import complaint
from modelserve.calls.samples import Refusal, refused_cells, samples_of, statistics_of, whole
from modelserve.contract.reservations import ReserveBody, RunningJob
from modelserve.errors import BadRequest
from scheduler_core.measuring import Running, Samples, faults_of, measure
from scheduler_core.reserve import ReservePolicy
from scheduler_core.types import FloatArray, IntArray

__all__ = ["Measured", "measured", "read_logged", "requests_of", "write_logged"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Measured:
    """Statistics and age (n,) of the jobs of one call, what was refused of each job, and the policy to apply."""

    age_s: FloatArray
    known: Running
    refused: Sequence[Sequence[Refusal]]
    policy: ReservePolicy


def measured(body: ReserveBody, now: float, policy: ReservePolicy) -> Measured:
    """Check the samples and statistics of all jobs, and return the statistics after the samples.

    If anything of a job is refused, no sample of it is added; its sound memory samples still raise the largest.
    """
    rows = body.jobs
    refused: list[list[Refusal]] = [[] for _ in rows]
    age_s = np.array([_age_s(row, now, refused[i]) for i, row in enumerate(rows)])
    known = statistics_of(rows, age_s, refused)
    samples = samples_of(rows, refused)
    codes = faults_of(samples, known.at_s, age_s)
    refused_cells(rows, codes, refused)
    _leave_out(np.flatnonzero([bool(each) for each in refused]), samples, codes, known)
    known = measure(requests_of(rows), samples, known, policy)
    return Measured(age_s=np.nan_to_num(age_s), known=known, refused=refused, policy=policy)


def _leave_out(jobs: IntArray, samples: Samples, codes: IntArray, known: Running) -> None:
    """Remove the samples of these jobs, but keep the largest memory among their valid samples."""
    sound = np.where(codes[jobs, :, 3:] == 0, samples.use[jobs, :, 2:], np.nan)
    known.memory[jobs] = np.fmax(known.memory[jobs], np.fmax.reduce(sound, axis=1, initial=np.nan))
    samples.at_s[jobs] = samples.use[jobs] = np.nan


def _age_s(row: RunningJob, now: float, refused: list[Refusal]) -> float:
    if row.age_s is not None:
        refused += [] if row.start_ts is None else [whole("start_ts", "ambiguous")]
        return row.age_s
    if row.start_ts is None:
        refused.append(whole("age_s", "missing"))
        return math.nan
    return max(now - row.start_ts.timestamp(), 0.0)


def requests_of(rows: Sequence[RunningJob]) -> FloatArray:
    """Return the requests of all jobs (n, 3): CPU cores, GiB of memory and GPUs; 0 if not requested."""
    asked = [row.request for row in rows]
    return np.array([(each.cpu_cores or 0.0, each.mem_gib or 0.0, each.gpus or 0.0) for each in asked])


_NO_SAMPLES: Final = {"jobs": {"__all__": {"samples", "statistics"}}}
_STATISTICS: Final = tuple(each.name for each in fields(Running))

Numbers = list[float | None]


class Logged(BaseModel):
    """What the log keeps of a reservation call: its jobs without samples and statistics, and their `Measured`."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    jobs: tuple[RunningJob, ...]
    trace: str | None = None
    age_s: list[float]
    known: dict[str, Numbers | list[Numbers]]
    refused: list[list[Refusal]]
    policy: dict[str, float]


def write_logged(body: ReserveBody, found: Measured) -> bytes:
    """Return what the log keeps of a call, as JSON; its jobs are where those of other calls are."""
    head = body.__pydantic_serializer__.to_json(body, exclude=_NO_SAMPLES, exclude_defaults=True)
    rest = {
        "age_s": found.age_s.tolist(),
        "known": {name: getattr(found.known, name).tolist() for name in _STATISTICS},
        "refused": found.refused,
        "policy": asdict(found.policy),
    }
    return head[:-1] + b"," + to_json(rest, inf_nan_mode="null")[1:]


def read_logged(body: Mapping[str, object]) -> tuple[ReserveBody, Measured]:
    """Read what `write_logged` wrote, parsed as JSON.

    Raises
    ------
    BadRequest
        The log was written by another version of the service.
    """
    never = dict.fromkeys(("at_s", "pressed_s"), -math.inf)
    try:
        logged = Logged.model_validate(body, strict=False)
        policy = ReservePolicy(**logged.policy)
        known = {name: _array(logged.known[name], never.get(name, math.nan)) for name in _STATISTICS}
    except (ValidationError, KeyError, TypeError) as error:
        what = complaint(error) if isinstance(error, ValidationError) else str(error)
        raise BadRequest(f"call of the answer: {what}; it was written by another version") from error
    found = Measured(age_s=np.array(logged.age_s), known=Running(**known), refused=logged.refused, policy=policy)
    return ReserveBody(jobs=logged.jobs, trace=logged.trace), found


def _array(values: Numbers | list[Numbers], null: float) -> FloatArray:
    array = np.array(values, dtype=np.float64)
    return np.where(np.isnan(array), null, array)
