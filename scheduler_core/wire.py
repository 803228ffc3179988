"""The service's JSON: jobs as the rows that ask about them, its answer as recommendations, checked value by value.

No connection here. An answer is a stranger's: a row that cannot be meant leaves its request standing, and a list that
cannot be meant is refused as a whole. Called by `modelserve.client.http_scale`.
"""

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import Final

from scheduler_core.errors import PredictorUnavailable
from scheduler_core.types import LEAST_GIVEN, RESOURCES, Job, Reason, Recommendation, Request
from scheduler_core.verdicts import standing

LONGEST_TEXT: Final = 256
LARGEST_AMOUNT: Final = 1e6
LARGEST_GANG: Final = 1_000_000
"""What the service takes; one job beyond it would have the whole call refused."""

LEAST_RUN_S: Final = 1e-9
AMOUNT_SLACK: Final = 2e-6
"""Amounts are told with six decimals, rounded up."""

MOVING: Final = frozenset({Reason.SHRUNK, Reason.FLOOR})
"""The reasons for which a target may lie below its request."""

SHOWN: Final = 40
TEXTS: Final = ("job_id", "trace", "task_type", "role", "cluster", "user", "group", "vc", "workload", "gpu_type")
MODES: Final = ("enforce", "observe")


@dataclass(frozen=True, slots=True, kw_only=True)
class Said:
    """What was said of one job: the recommendation, whether it is to be followed, the models that answered."""

    recommendation: Recommendation
    enforced: bool = True
    models: tuple[str, ...] = ()


def unaskable(job: Job) -> str:
    """Return why the service would refuse a job, "" where it would not.

    Examples
    --------
    >>> asked = Job(job_id="", trace="pai", task_type="ctr", request=Request(cpu_cores=1.0, mem_gib=1.0, gpus=1.0))
    >>> unaskable(asked)
    'not asked about: found a job_id of 0 characters, expected 1 to 256'
    """
    for name in TEXTS:
        text = getattr(job, name)
        if text is not None and not 1 <= len(text) <= LONGEST_TEXT:
            return f"not asked about: found a {name} of {len(text)} characters, expected 1 to {LONGEST_TEXT}"
        if text is not None and not _is_unicode(text):
            return f"not asked about: found a {name} that is no Unicode text"
    for amount in (*job.request.row(), *(() if job.minimum is None else job.minimum.row())):
        if not (math.isnan(amount) or 0.0 <= amount <= LARGEST_AMOUNT):
            return f"not asked about: found an amount of {amount}, expected 0 to {LARGEST_AMOUNT:g}"
    if not 1 <= job.instances <= LARGEST_GANG:
        return f"not asked about: found {job.instances} instances, expected 1 to {LARGEST_GANG}"
    try:
        _moment(job.submit_ts)
    except (OverflowError, ValueError, OSError):
        return f"not asked about: found the submission {job.submit_ts}, expected a moment in seconds"
    return ""


def body_of(jobs: Sequence[Job], options: Mapping[str, object]) -> bytes:
    """Return the call's body about jobs that can be asked about; options that are None are left to the service."""
    said = {name: value for name, value in options.items() if value is not None}
    return json.dumps({"jobs": [_row(job) for job in jobs], **said}, separators=(",", ":"), allow_nan=False).encode()


def read_answer(content: bytes, jobs: Sequence[Job], *, floors_expected: bool) -> list[Said]:
    """Read what the service says of `jobs`, in their order.

    `floors_expected`: a target below its request is believed only beside the lower bound it was held above.

    Raises
    ------
    PredictorUnavailable
        The answer as a whole cannot be meant: no JSON, or not these jobs in this order.
    """
    try:
        said = json.loads(content, parse_constant=_refused_constant)
    except (ValueError, RecursionError) as error:
        size = f"{len(content)} bytes" if content else "nothing"
        raise PredictorUnavailable(
            f"found no JSON in the answer, {size} that came in time: {str(error)[:80]}"
        ) from error
    rows = said.get("recommendations") if isinstance(said, dict) else None
    if not isinstance(rows, list) or not all(isinstance(row, dict) for row in rows):
        raise PredictorUnavailable(f"found an answer without a list of recommendations: {str(content[:SHOWN])[1:]}")
    if len(rows) != len(jobs):
        raise PredictorUnavailable(f"found {len(rows)} recommendations, expected {len(jobs)}")
    for place, (job, row) in enumerate(zip(jobs, rows, strict=True)):
        if row.get("job_id") != job.job_id:
            found = str(row.get("job_id"))[:SHOWN]
            raise PredictorUnavailable(f"found job {found!r} at place {place}, expected {job.job_id[:SHOWN]!r}")
    return [_said(job, row, floors_expected=floors_expected) for job, row in zip(jobs, rows, strict=True)]


def readable(text: str) -> str:
    r"""Return text that can be written to a file: JSON may say half of a pair of surrogates.

    Examples
    --------
    >>> readable("cut \\ud83d here, whole \U0001f600 there").isprintable()
    True
    """
    return text.encode("utf-8", "replace").decode()


def stands(job: Job, note: str) -> Recommendation:
    """Return the recommendation that leaves a job as it is because no prediction came, and why."""
    return standing(job, Reason.PREDICTOR_UNAVAILABLE, note=note)


def observed(answer: Recommendation) -> Recommendation:
    """Return a recommendation that is only to be noted: the request stands, the note keeps the target."""
    told = {name: value for name, value in _amounts(answer.target).items() if name in answer.reasons}
    unmoved = answer.run_time_change if math.isnan(answer.run_time_change) else 0.0
    note = "; ".join(filter(None, [answer.note, f"mode observe: the request stands, the target was {told}"]))
    return replace(answer, target=answer.request, run_time_change=unmoved, alpha=1.0, model_decided=False, note=note)


def _row(job: Job) -> dict[str, object]:
    said: dict[str, object] = {name: text for name in TEXTS if (text := getattr(job, name)) is not None}
    said |= {"request": _amounts(job.request), "instances": job.instances}
    if job.submit_ts:  # 0 is a scheduler's way of not saying one
        said["submit_ts"] = _moment(job.submit_ts).isoformat()
    if job.opted_out:
        said["opted_out"] = True
    if job.minimum is not None:
        said["floors"] = _amounts(job.minimum)
    return said


def _amounts(request: Request) -> dict[str, float]:
    return {name: value for name, value in zip(RESOURCES, request.row(), strict=True) if not math.isnan(value)}


def _moment(submit_ts: float) -> datetime:
    return datetime.fromtimestamp(submit_ts, UTC)


def _is_unicode(text: str) -> bool:
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def _refused_constant(name: str) -> float:
    raise ValueError(f"{name} is no JSON number")


def _said(job: Job, row: Mapping[str, object], *, floors_expected: bool) -> Said:
    try:
        answer = _recommendation(job, row)
        _check_targets(answer, floors_expected=floors_expected)
        mode = row.get("mode", "observe")
        if mode not in MODES:
            raise PredictorUnavailable(f"found the mode {_shown(mode)}, expected {' or '.join(MODES)}")
        models = tuple(readable(model) for model in _part(row, "models").values() if isinstance(model, str))
    except PredictorUnavailable as error:
        return Said(recommendation=stands(job, str(error)))
    return Said(recommendation=answer, enforced=mode == "enforce", models=models)


def _recommendation(job: Job, row: Mapping[str, object]) -> Recommendation:
    echoed = _request(row, "request")
    if not all(map(_same, echoed.row(), job.request.row())):
        raise PredictorUnavailable(f"found an answer to the request {echoed.row()}, expected {job.request.row()}")
    times = _part(row, "run_time_s")
    note = row.get("note")
    return Recommendation(
        job_id=job.job_id,
        request=job.request,
        target=_request(row, "target"),
        lower_bound=_request(row, "lower_bound"),
        run_time_p50_s=_number(times.get("p50"), "run_time_s.p50", least=LEAST_RUN_S),
        run_time_p90_s=_number(times.get("p90"), "run_time_s.p90", least=LEAST_RUN_S),
        run_time_change=_number(row.get("run_time_change"), "run_time_change", least=-1.0),
        reasons=_reasons(job, _part(row, "reasons")),
        alpha=_number(row.get("alpha", 1.0), "alpha", least=0.0, most=1.0),
        model_decided=row.get("model_decided") is True,
        runs=int(_number(row.get("measured_runs", 0) or 0, "measured_runs", least=0.0, most=1e15)),
        note=readable(note[:LONGEST_TEXT]) if isinstance(note, str) else "",
    )


def _check_targets(answer: Recommendation, *, floors_expected: bool) -> None:
    """Refuse a target above its request, below its lower bound, without a reason to move, or without a floor."""
    amounts = (answer.target.row(), answer.lower_bound.row(), answer.request.row())
    for name, target, lower, request, least in zip(RESOURCES, *amounts, LEAST_GIVEN, strict=True):
        if math.isnan(request) != math.isnan(target):
            raise PredictorUnavailable(f"found the target {name}={target} where {request} was asked for")
        if target > request or target < min(least, request) or target < lower - AMOUNT_SLACK:
            bounds = f"of at least {least:g}, from {lower} to {request}"
            raise PredictorUnavailable(f"found the target {name}={target}, expected one {bounds}")
        if target < request and answer.reasons[name] not in MOVING:
            raise PredictorUnavailable(f"found the target {name}={target} of {request} with {answer.reasons[name]!s}")
        if target < request and math.isnan(lower) and floors_expected:
            raise PredictorUnavailable(f"found the target {name}={target} without a lower bound")


def _reasons(job: Job, said: Mapping[str, object]) -> dict[str, Reason]:
    found = {}
    for name in _amounts(job.request):
        try:
            found[name] = Reason(str(said.get(name)))
        except ValueError:
            raise PredictorUnavailable(f"found the reason {_shown(said.get(name))} for {name}") from None
    return found


def _request(row: Mapping[str, object], part: str) -> Request:
    said = _part(row, part)
    cpu_cores, mem_gib, gpus = (_number(said.get(name), f"{part}.{name}", least=0.0) for name in RESOURCES)
    return Request(cpu_cores=cpu_cores, mem_gib=mem_gib, gpus=gpus)


def _part(row: Mapping[str, object], name: str) -> Mapping[str, object]:
    found = row.get(name)
    if not isinstance(found, dict):
        raise PredictorUnavailable(f"found {_shown(found)} as {name}, expected an object")
    return found


def _number(found: object, name: str, *, least: float, most: float = math.inf) -> float:
    """Return a number, NaN for null."""
    if found is None:
        return math.nan
    try:
        if isinstance(found, int | float) and not isinstance(found, bool):
            value = float(found)
            if math.isfinite(value) and least <= value <= most:
                return value
    except OverflowError:
        pass
    raise PredictorUnavailable(f"found {name}={_shown(found)}, expected a finite number from {least:g} to {most:g}")


def _same(said: float, asked: float) -> bool:
    if math.isnan(asked):
        return math.isnan(said)
    return math.isclose(said, asked, rel_tol=1e-6, abs_tol=AMOUNT_SLACK)


def _shown(found: object) -> str:
    return repr(found)[:SHOWN]
