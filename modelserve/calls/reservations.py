"""Reservation calls: what to reserve for each running job, given its samples, and whether to apply it.

The decision is `scheduler_core.reserve`; this module adds modes, brakes, memory floors and minimums.
"""

import math
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from math import isfinite
from typing import Final

import numpy as np

from modelserve.calls.context import Answered, RequestContext, Values, written
from modelserve.calls.recommendations import minimum_of
from modelserve.calls.samples import USES, Refusal, device_gib, refused_cells, samples_of, statistics_of, whole
from modelserve.contract.requests import NO_FLOORS
from modelserve.contract.reservations import ReserveBody, RunningJob
from scheduler_core.reserve import ReservePolicy, ReserveReason, Running, Samples, faults_of, measure, reserve
from scheduler_core.types import RESOURCES, FloatArray, IntArray

__all__ = ["POLICY", "reserved"]

POLICY: Final = ReservePolicy()
"""When running jobs are resized in the service, and how much is reserved for them."""

REFUSED: Final = "refused"
"""Reason of a job whose samples or statistics are refused."""

_NO_SAMPLES: Final = {"jobs": {"__all__": {"samples", "statistics"}}}

Amounts = tuple[FloatArray, FloatArray, FloatArray]
"""Mean, spread and memory to reserve for n jobs, each (n, 2), as in `scheduler_core.reserve.Reservations`."""
Pair = Sequence[float]
"""A value of CPU cores and one of GPUs."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Measured:
    """Statistics and age (n,) of the jobs of one call, and the refused values of each job."""

    age_s: FloatArray
    known: Running
    refused: Sequence[Sequence[Refusal]]


def reserved(context: RequestContext, body: ReserveBody) -> Answered:
    """Return the response to a reservation call; the log keeps its jobs without samples and statistics."""
    rows = body.jobs
    found = measured(rows, context.now)
    brakes = [context.braked(row) for row in rows]
    out = [bool(each) for each in found.refused]
    held = [row.held or row.opted_out or bool(brake) for row, brake in zip(rows, brakes, strict=True)]
    requests = _requests(rows)
    made = reserve(requests, found.known, found.age_s, np.array(held) | np.array(out), POLICY)
    amounts = _at_least((made.mean, made.spread, made.memory), requests, _minimums(context, rows))
    names = tuple(map(str, ReserveReason))
    reasons = [REFUSED if o else names[code] for o, code in zip(out, made.reason.tolist(), strict=True)]
    answers = [
        {"job_id": row.job_id, "mode": context.mode(row)} | answer
        for row, answer in zip(rows, _answers(rows, amounts, found, reasons, brakes), strict=True)
    ]
    return Answered(
        body=written({"answer_id": context.answer_id, "z": POLICY.z, "reservations": answers}),
        counts=_counts(reasons, found),
        reserved=_totals(rows, requests, amounts),
        kept=body.__pydantic_serializer__.to_json(body, exclude=_NO_SAMPLES, exclude_defaults=True),
    )


def measured(rows: Sequence[RunningJob], now: float) -> Measured:
    """Check the samples and statistics of all jobs, and return the statistics after the samples.

    If anything of a job is refused, none of its samples is added; valid memory samples still raise the largest.
    """
    refused: list[list[Refusal]] = [[] for _ in rows]
    age_s = np.array([_age_s(row, now, refused[i]) for i, row in enumerate(rows)])
    known = statistics_of(rows, age_s, refused)
    samples = samples_of(rows, refused)
    codes = faults_of(samples, known.at_s, age_s)
    refused_cells(rows, codes, refused)
    _leave_out(np.flatnonzero([bool(each) for each in refused]), samples, codes, known)
    known = measure(_requests(rows), samples, known, POLICY)
    return Measured(age_s=np.nan_to_num(age_s), known=known, refused=refused)


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


def _requests(rows: Sequence[RunningJob]) -> FloatArray:
    """Return the requests of all jobs (n, 3): CPU cores, GiB of memory and GPUs; 0 if not requested."""
    asked = [row.request for row in rows]
    return np.array([(each.cpu_cores or 0.0, each.mem_gib or 0.0, each.gpus or 0.0) for each in asked])


def _minimums(context: RequestContext, rows: Sequence[RunningJob]) -> FloatArray:
    """Return the minimum amounts of each job (n, 3), in the order of `RESOURCES`; 0 for none."""
    least = [minimum_of(context, row, NO_FLOORS) for row in rows]
    amounts: FloatArray = np.array([(0.0, 0.0, 0.0) if each is None else each.row() for each in least])
    return np.where(np.isnan(amounts), 0.0, amounts)


def _at_least(amounts: Amounts, requests: FloatArray, least: FloatArray) -> Amounts:
    """Return reservations raised to the minimum amounts; a minimum raises none above the request."""
    if not least.any():
        return amounts
    mean, spread, memory = amounts
    low = np.minimum(least, requests)
    mean = np.maximum(mean, low[:, [0, 2]])
    room = (requests[:, [0, 2]] - mean) / POLICY.z if POLICY.z > 0.0 else np.inf
    return mean, np.minimum(spread, room), np.maximum(memory, low[:, [1, 2]])


def _answers(
    rows: Sequence[RunningJob], made: Amounts, found: Measured, reasons: Sequence[str], brakes: Sequence[str | None]
) -> Iterator[Values]:
    """Yield the response about each job except its id and mode; NaN and infinity become null when it is written."""
    of = found.known
    amounts = zip(*(each.tolist() for each in made), strict=True)
    times = zip(found.age_s.tolist(), of.count.tolist(), of.at_s.tolist(), strict=True)
    uses = zip(*(each.tolist() for each in (of.mean, of.recent, of.squares, of.pressed_s)), strict=True)
    columns = (amounts, times, uses, of.memory.tolist(), reasons, found.refused, brakes)
    for row, amount, time, use, (mem_gib, gpu_mem), reason, refused, brake in zip(rows, *columns, strict=True):
        mean, spread, memory = amount
        age_s, count, at_s = time
        asked = row.request
        cpu_cores, gpus = asked.cpu_cores is not None, asked.gpus is not None
        of_gpus = gpus or isfinite(gpu_mem)
        statistics: Values = {
            "count": int(count),
            "at_s": at_s,
            "cpu_cores": _compute(0, *use) if count else None,
            "gpus": _compute(1, *use) if count else None,
            "mem_gib": mem_gib,
            "gpu_mem_gpus": gpu_mem,
        }
        yield {
            "request": {"cpu_cores": asked.cpu_cores, "mem_gib": asked.mem_gib, "gpus": asked.gpus},
            "mean": {"cpu_cores": mean[0] if cpu_cores else None, "gpus": mean[1] if gpus else None},
            "spread": {"cpu_cores": spread[0] if cpu_cores else None, "gpus": spread[1] if gpus else None},
            "memory": {
                "mem_gib": memory[0] if asked.mem_gib is not None or isfinite(mem_gib) else None,
                "gpu_mem_gpus": memory[1] if of_gpus else None,
                "gpu_mem_gib": memory[1] * device_gib(row) if of_gpus else None,
            },
            "reason": reason,
            "refused": [{"field": field, "why": why, "samples": at} for field, why, at in refused],
            "statistics": statistics,
            "note": _note(row, reason, statistics, age_s, brake),
        }


def _compute(place: int, mean: Pair, recent: Pair, squares: Pair, pressed_s: Pair) -> Values | None:
    """Return the statistics of CPU cores (0) or GPUs (1); None if not measured."""
    if not isfinite(mean[place]):
        return None
    return {
        "mean": mean[place],
        "recent": recent[place],
        "squares": squares[place],
        "pressed_s": pressed_s[place],
    }


def _note(row: RunningJob, reason: str, statistics: Values, age_s: float, brake: str | None) -> str | None:
    """Return why the job keeps its request, or a part of it; None if all of the job was measured."""
    if reason == ReserveReason.MEASURED:
        missing = _unmeasured(row, statistics)
        return f"not measured, so the request stands: {', '.join(missing)}" if missing else None
    if reason == REFUSED:
        return "samples or statistics were refused"
    if reason == ReserveReason.HELD:
        return f"not reduced: {brake}" if brake else "opted out" if row.opted_out and not row.held else None
    if reason == ReserveReason.PROBATION:
        return f"expected an age of {POLICY.probation_s:g} s and {POLICY.min_samples:g} samples"
    if reason == ReserveReason.STALE:
        silent_s = age_s - statistics["at_s"]
        return f"the newest sample is {silent_s:.0f} s old, expected at most {POLICY.stale_s:g} s"
    return f"use pressed on the reservation of {_pressed(statistics, age_s)}"


def _pressed(statistics: Values, age_s: float) -> str:
    seen = {name: statistics[name] for name in ("cpu_cores", "gpus") if statistics[name] is not None}
    return " and ".join(name for name, of in seen.items() if age_s - of["pressed_s"] < POLICY.press_s)


def _unmeasured(row: RunningJob, statistics: Values) -> list[str]:
    asked = row.request
    measured = (statistics["cpu_cores"], statistics["gpus"], statistics["mem_gib"], statistics["gpu_mem_gpus"])
    amounts = (asked.cpu_cores, asked.gpus, asked.mem_gib, asked.gpus)
    return [
        name for name, amount, of in zip(USES, amounts, measured, strict=True) if amount and (of is None or of != of)
    ]


def _counts(reasons: Sequence[str], found: Measured) -> Counter[tuple[str, ...]]:
    counted: Counter[tuple[str, ...]] = Counter(("reservation", reason) for reason in reasons)
    for refusals in found.refused:
        for _, why, places in refusals:
            counted["refused_sample", why] += max(len(places), 1)
    return counted


def _totals(rows: Sequence[RunningJob], requests: FloatArray, made: Amounts) -> dict[str, tuple[float, float]]:
    """Return the totals requested and reserved over all instances, by resource: the mean, and memory as it is."""
    instances = np.array([row.instances for row in rows], dtype=np.float64)
    mean, _, memory = made
    amounts = (mean[:, 0], memory[:, 0], mean[:, 1])
    return {
        name: (float(instances @ requests[:, place]), float(instances @ amounts[place]))
        for place, name in enumerate(RESOURCES)
    }
