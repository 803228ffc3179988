"""Convert a scheduler's jobs to rows of a call, and the checked rows of the response to recommendations.

If a row fails a check, its job keeps its request. A response about other jobs is an error.
"""

import json
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from datetime import UTC, datetime
from typing import Final

from pydantic import ValidationError

from modelserve.bundle.card import complaint
from modelserve.client.messages import Call, check_ids, rows_as
from modelserve.contract.fields import Mode
from modelserve.contract.jobs import Amounts, Recommended
from modelserve.contract.requests import RecommendJob
from modelserve.errors import BadRequest, WrongAnswer
from scheduler_core.types import LEAST_GIVEN, RESOURCES, Job, Reason, Recommendation, Request

AMOUNT_SLACK: Final = 2e-6
"""Largest difference of an amount due to rounding: the service rounds amounts up to six decimals."""

MOVING: Final = frozenset({Reason.SHRUNK, Reason.FLOOR})
"""Reasons that a recommendation may give for a target below the request."""

TEXTS: Final = ("job_id", "trace", "task_type", "role", "cluster", "user", "group", "vc", "workload", "gpu_type")
NOTE_LENGTH: Final = 300
SHOWN: Final = 40

STEP_RUNS: Final = 5
"""With n measured runs, `careful_target` keeps at least this many n-ths of the requested memory.

That is a half with 10 runs, a twentieth with 100. A higher peak than in n runs may still occur in up to 3 of n later
runs (95 %), and kills the job. Each further step saves less memory, so it needs more runs.
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Advice(Recommendation):
    """A recommendation from the service, with its mode, the id of the answer, and the models that made it.

    The feedback about the job should name `answer_id`, which is empty if no answer came.
    """

    mode: Mode
    answer_id: str
    models: tuple[str, ...] = ()

    @property
    def given(self) -> Request:
        """The resources to give the job: the target in mode `enforce`, otherwise its request."""
        return self.target if self.mode == "enforce" else self.request

    @property
    def careful_target(self) -> Request:
        """The target for a cluster that kills jobs over their memory: memory falls in steps, as runs are measured."""
        share = min(STEP_RUNS / max(self.runs, 1), 1.0)
        return replace(self.target, mem_gib=max(self.target.mem_gib, share * self.request.mem_gib))


def row_of(job: Job) -> RecommendJob:
    """Return a scheduler's job as a row of a call."""
    values: dict[str, object] = {name: getattr(job, name) for name in TEXTS}
    values |= {"request": _known(job.request), "instances": job.instances, "opted_out": job.opted_out}
    if job.submit_ts:  # 0: unknown
        try:
            values["submit_ts"] = datetime.fromtimestamp(job.submit_ts, UTC)
        except (OverflowError, ValueError, OSError) as error:
            raise BadRequest(f"submit_ts: found {job.submit_ts}, expected Unix time in seconds") from error
    if job.minimum is not None:
        values["floors"] = _known(job.minimum)
    return rows_as(RecommendJob, [{name: value for name, value in values.items() if value is not None}])[0]


def rows_of(jobs: Iterable[Job]) -> tuple[list[RecommendJob | None], list[str]]:
    """Return two lists: a row for each job, and a reason for each job why it cannot be sent.

    For a valid job the reason is ""; for a job that the service would refuse, the row is None.
    """
    rows: list[RecommendJob | None] = []
    notes = []
    for job in jobs:
        try:
            rows.append(row_of(job))
            notes.append("")
        except BadRequest as error:
            rows.append(None)
            notes.append(f"not sent: {error}")
    return rows, notes


def unchanged(job: Job, note: str) -> Advice:
    """Return the advice to keep a job's request because there is no prediction; `note` says why."""
    kept = Recommendation.unchanged(job, Reason.PREDICTOR_UNAVAILABLE, note=writable(note)[:NOTE_LENGTH])
    return Advice(**{each.name: getattr(kept, each.name) for each in fields(kept)}, mode="observe", answer_id="")


def read_advice(content: bytes, jobs: Sequence[Job], call: Call, *, floors_expected: bool) -> list[Advice]:
    """Read a response with recommendations for `jobs`, in their order.

    If a row fails a check, its job keeps its request. With `floors_expected`, a row with a target below its request but
    without a lower bound fails.
    """
    try:
        # Use Python's parser: unlike pydantic's, it accepts half of a surrogate pair, which `writable` then replaces.
        answer = json.loads(content, parse_constant=_refused_constant, object_hook=_writable_values)
    except (ValueError, RecursionError) as error:
        size = f"{len(content)} bytes" if content else "nothing"
        raise WrongAnswer(f"{call}: found no JSON in the answer, read {size}: {str(error)[:80]}") from error
    rows = answer.get("recommendations") if isinstance(answer, dict) else None
    if not isinstance(rows, list) or not all(isinstance(row, dict) for row in rows):
        raise WrongAnswer(f"{call}: found an answer without a list of recommendations: {str(content[:SHOWN])[1:]}")
    check_ids([job.job_id for job in jobs], [str(row.get("job_id")) for row in rows], call)
    answer_id = str(answer.get("answer_id", ""))
    return [
        _advice_of(job, row, answer_id, floors_expected=floors_expected) for job, row in zip(jobs, rows, strict=True)
    ]


def writable(text: str) -> str:
    r"""Return a text in which "?" replaces what UTF-8 cannot encode: halves of surrogate pairs, which JSON may contain.

    >>> writable("cut \\ud83d here, whole \U0001f600 there").isprintable()
    True
    """
    return text.encode("utf-8", "replace").decode()


def _writable_values(values: dict[str, object]) -> dict[str, object]:
    return {name: writable(value) if isinstance(value, str) else value for name, value in values.items()}


def _refused_constant(name: str) -> float:
    raise ValueError(f"{name} is no JSON number")


def _advice_of(job: Job, values: Mapping[str, object], answer_id: str, *, floors_expected: bool) -> Advice:
    try:
        row = Recommended.model_validate(values)
        echoed = _request(row.request)
        if not all(map(_same, echoed.row(), job.request.row())):
            raise WrongAnswer(f"an answer to the request {echoed.row()}, expected {job.request.row()}")
        found = Advice(
            job_id=job.job_id,
            request=job.request,
            target=_request(row.target),
            lower_bound=_request(row.lower_bound),
            run_time_p50_s=_or_nan(row.run_time_s.p50),
            run_time_p90_s=_or_nan(row.run_time_s.p90),
            run_time_change=_or_nan(row.run_time_change),
            reasons=_reasons(job, row),
            alpha=row.alpha,
            model_decided=row.model_decided,
            runs=row.measured_runs,
            note=(row.note or "")[:NOTE_LENGTH],
            raise_to=_request(row.raise_to),
            mode=row.mode,
            answer_id=answer_id,
            models=tuple(name for name in (row.models.run_time, row.models.usage) if name is not None),
        )
        _check_bounds(found, floors_expected=floors_expected)
    except ValidationError as error:
        return unchanged(job, f"found {complaint(error)}")
    except (WrongAnswer, OverflowError) as error:
        return unchanged(job, f"found {error}")
    return found


def _reasons(job: Job, row: Recommended) -> dict[str, Reason]:
    reasons = {name: getattr(row.reasons, name) for name in _known(job.request)}
    missing = [name for name, reason in reasons.items() if reason is None]
    if missing:
        raise WrongAnswer(f"no reason for {missing[0]}, expected one for every requested resource")
    return reasons


def _check_bounds(found: Recommendation, *, floors_expected: bool) -> None:
    """Raise `WrongAnswer` for an impossible value, or a target that is not between lower bound and request."""
    if found.run_time_p50_s <= 0.0 or found.run_time_p90_s <= 0.0 or found.run_time_change < -1.0:
        times = f"{found.run_time_p50_s} s and {found.run_time_p90_s} s, change {found.run_time_change}"
        raise WrongAnswer(f"the run times {times}, expected times above 0 and a change of at least -1")
    if not 0.0 <= found.alpha <= 1.0 or found.runs < 0:
        raise WrongAnswer(f"alpha={found.alpha}, measured_runs={found.runs}, expected alpha from 0 to 1 and a count")
    amounts = (found.target.row(), found.lower_bound.row(), found.request.row())
    for name, target, lower, request, least in zip(RESOURCES, *amounts, LEAST_GIVEN, strict=True):
        if math.isnan(request) != math.isnan(target):
            raise WrongAnswer(f"the target {name}={target} for a request of {request}")
        if target > request or target < min(least, request) or target < lower - AMOUNT_SLACK or lower < 0.0:
            raise WrongAnswer(
                f"the target {name}={target}, expected one of at least {least:g}, from {lower} to {request}"
            )
        if target < request and found.reasons[name] not in MOVING:
            raise WrongAnswer(f"the target {name}={target} of {request} with the reason {found.reasons[name]!s}")
        if target < request and math.isnan(lower) and floors_expected:
            raise WrongAnswer(f"the target {name}={target} without a lower bound")


def _known(request: Request) -> dict[str, float]:
    amounts = zip(RESOURCES, request.row(), strict=True)
    # Drop None too, because some callers pass on a null of JSON.
    return {name: value for name, value in amounts if value is not None and not math.isnan(value)}


def _request(amounts: Amounts) -> Request:
    return Request(cpu_cores=_or_nan(amounts.cpu_cores), mem_gib=_or_nan(amounts.mem_gib), gpus=_or_nan(amounts.gpus))


def _or_nan(value: float | None) -> float:
    return math.nan if value is None else value


def _same(echoed: float, requested: float) -> bool:
    if math.isnan(requested):
        return math.isnan(echoed)
    return math.isclose(echoed, requested, rel_tol=1e-6, abs_tol=AMOUNT_SLACK)
