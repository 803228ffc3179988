"""`AsyncClient`: every call of the service as a coroutine that takes jobs and returns typed answers.

The calls are those of the table `modelserve.contract.calls`; `modelserve.client.exchange` sends them.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any, Final, Literal, Self, TypeVar, Unpack

from pydantic import BaseModel

from modelserve.bundle.card import Resource
from modelserve.client.advice import Advice, read_advice, rows_of, unchanged
from modelserve.client.exchange import Exchange, Options
from modelserve.client.messages import (
    Call,
    body_as,
    check_ids,
    given,
    message_of,
    parts,
    read_answer,
    rows_as,
    whole,
    with_jobs,
)
from modelserve.client.policy import JOBS_PER_CALL
from modelserve.contract import calls
from modelserve.contract.calls import CallShape
from modelserve.contract.feedback import DriftAnswer, FeedbackAnswer, FeedbackRow, ModeAnswer, ModeChange
from modelserve.contract.fields import Guard, Mode, RequestRow
from modelserve.contract.jobs import ExplainAnswer, Prediction, RecentAnswer, Recommended, WhatIfAnswer
from modelserve.contract.models import CardAnswer, ImportancesAnswer, ModelsAnswer, Ready
from modelserve.contract.placements import (
    ClusterBody,
    PendingAnswer,
    PlaceAnswer,
    RouteAnswer,
    RouteBody,
    ScheduleAnswer,
    ScheduleBody,
)
from modelserve.contract.plans import MAX_PLANNED, Held, HoldJob, HourlyValues, PlanAnswer, PlanBody
from modelserve.contract.requests import MAX_JOBS, JobRow
from modelserve.contract.reservations import MAX_RUNNING, Reserved, RunningJob
from modelserve.errors import BadRequest, ClientError
from scheduler_core.types import Job

Found = TypeVar("Found")
Said = TypeVar("Said", bound=BaseModel)
Item = BaseModel | Mapping[str, object]
Jobs = Sequence[JobRow | Mapping[str, object]]

ANSWER_BYTES: Final = 65_536
ANSWER_BYTES_PER_JOB: Final = 4_096
"""Maximum bytes of a recommendation for each job, in addition to `ANSWER_BYTES`; the service writes about 700."""


class AsyncClient:
    """A client of the prediction service for asyncio.

    Every call may raise `BadRequest` for invalid arguments, and `ClientError` without a valid answer:
    `ServiceUnavailable`, `Refused` or `WrongAnswer`.

    Parameters
    ----------
    addresses
        Addresses of the service, such as `http://127.0.0.1:8080`; several addresses are replicas, tried in turn.
    token
        Bearer token, sent to these addresses only, and never part of a message.
    ca_file
        PEM file of the trusted certificate authorities; None means those of the system.
    verify
        Whether TLS certificates are checked; use False for trials only.
    timeouts, retries
        How long a call may take, and when it is retried. Only feedback (repeated reports count once) and calls that
        change nothing are retried.
    jobs_per_call
        Maximum number of jobs in one call. Longer lists are sent in parts; their answers are joined in order.
    """

    def __init__(self, *addresses: str, jobs_per_call: int = JOBS_PER_CALL, **options: Unpack[Options]) -> None:
        if not 1 <= jobs_per_call <= MAX_JOBS:
            raise BadRequest(f"client: found jobs_per_call={jobs_per_call}, expected 1 to {MAX_JOBS}")
        self.jobs_per_call = jobs_per_call
        self.exchange = Exchange(addresses, **options)

    def __repr__(self) -> str:
        return f"{type(self).__name__}({', '.join(map(repr, self.exchange.addresses))})"

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def close(self) -> None:
        """Close the connections; later calls raise `ClientError`."""
        await self.exchange.close()

    async def call(self, of: CallShape[Said], body: Item | None = None, **parameters: str | None) -> Said:
        """Send any call of the table with its body or parameters, and return its answer."""
        if body is None or of.body is None:
            return await self._ask(of.answer, message_of(of, None, **parameters))
        sent = body_as(of.body, body)
        message = message_of(of, whole(sent))
        said = await self._ask(of.answer, message)
        if of.rows or of.jobs == "job":
            check_ids([job.job_id for job in of.jobs_of(sent)], [row.job_id for row in of.rows_of(said)], message)
        return said

    async def predictions(
        self, jobs: Jobs, *, trace: str | None = None, outputs: Sequence[Literal["run_time", "peak_use"]] | None = None
    ) -> list[Prediction]:
        """Predict the run time and peak resource use of jobs; answers are in the order of the jobs."""
        return await self._each(calls.PREDICT, jobs, trace=trace, outputs=outputs)

    async def recommendations(
        self,
        jobs: Jobs,
        *,
        trace: str | None = None,
        theta: float | None = None,
        alpha: float | None = None,
        guard: Guard | None = None,
        floors: RequestRow | None = None,
    ) -> list[Recommended]:
        """Recommend how far the requests of jobs can shrink; answers are in the order of the jobs.

        `theta`, `alpha`, `guard` and `floors` apply to every job of the call; a job may have its own `floors`.
        """
        least = None if floors is None else floors.model_dump(exclude_none=True)
        return await self._each(calls.RECOMMEND, jobs, trace=trace, theta=theta, alpha=alpha, guard=guard, floors=least)

    async def recent_recommendations(self, *, trace: str | None = None, task_type: str | None = None) -> RecentAnswer:
        """Return the newest recommendations, the resources they freed, and the outcomes of their jobs."""
        return await self.call(calls.RECENT, trace=trace, task_type=task_type)

    async def recommend(
        self, jobs: Sequence[Job], *, theta: float | None = None, alpha: float | None = None, guard: Guard | None = None
    ) -> list[Advice]:
        """Recommend a target for each job of a scheduler, as `scheduler_core.shrink` does; raise no error.

        A job without a valid answer keeps its request, with the reason `predictor_unavailable`; `note` holds the cause.
        """
        limits = {"theta": theta, "alpha": alpha, "guard": guard}
        rows, notes = rows_of(jobs)
        found = [unchanged(job, note) for job, note in zip(jobs, notes, strict=True)]
        valid = [(i, job, row) for i, (job, row) in enumerate(zip(jobs, rows, strict=True)) if row is not None]
        deadline = self.exchange.deadline()
        for part in parts(valid, self.jobs_per_call):
            message = message_of(calls.RECOMMEND, with_jobs("jobs", [row for _, _, row in part], **limits))
            message = replace(message, most_bytes=ANSWER_BYTES + ANSWER_BYTES_PER_JOB * len(part))
            jobs_sent = [job for _, job, _ in part]
            try:
                content = await self.exchange.send(message, deadline)
                # Settings of the service may allow targets without lower bounds; the guard of a call overrides them.
                answers = read_advice(content, jobs_sent, message, floors_expected=guard == "usage")
            except ClientError as error:
                answers = [unchanged(job, str(error)) for job in jobs_sent]
            for (i, _, _), answer in zip(part, answers, strict=True):
                found[i] = answer
        return found

    async def reservations(
        self, jobs: Sequence[RunningJob | Mapping[str, object]], *, trace: str | None = None
    ) -> list[Reserved]:
        """Return what to reserve for running jobs, given their samples; answers are in the order of the jobs.

        The `statistics` of an answer may be sent with the job's newer samples in its next call. Wrong samples are no
        error: the answer lists them, and the job keeps its request. Without an answer, all do.
        """
        return await self._each(calls.RESERVE, jobs, most=MAX_RUNNING, trace=trace)

    async def routes(self, call: RouteBody | Mapping[str, object]) -> RouteAnswer:
        """Return the site where each waiting job starts now, and why; sites and jobs are sent in one call."""
        return await self.call(calls.ROUTE, call)

    async def placements(self, cluster: ClusterBody | Mapping[str, object]) -> PlaceAnswer:
        """Return where each waiting job of a cluster starts now, and why; the cluster is sent in one call."""
        return await self.call(calls.PLACE, cluster)

    async def schedule(self, cluster: ScheduleBody | Mapping[str, object]) -> ScheduleAnswer:
        """Return for each waiting job of a cluster what to give it, and where it starts now or why it waits."""
        return await self.call(calls.SCHEDULE, cluster)

    async def explain_pending(
        self, cluster: ClusterBody | Mapping[str, object], *, job_ids: Sequence[str] | None = None
    ) -> PendingAnswer:
        """Return why jobs of a cluster wait, and what would start them; `job_ids` None: the first in queue order."""
        body = cluster.model_dump(exclude_unset=True) if isinstance(cluster, BaseModel) else dict(cluster)
        explain = None if job_ids is None else tuple(job_ids)
        return await self.call(calls.PENDING, body | given({"explain": explain}))

    async def plan(self, body: PlanBody | Mapping[str, object]) -> PlanAnswer:
        """Return which jobs run now on which GPUs, within a carbon budget or at the lowest cost.

        Without an answer, all jobs go on as they are.
        """
        return await self.call(calls.PLAN, body)

    async def holds(
        self,
        jobs: Sequence[HoldJob | Mapping[str, object]],
        *,
        by: Literal["carbon", "price"],
        hours: HourlyValues | Mapping[str, object],
        trace: str | None = None,
    ) -> list[Held]:
        """Return for each job whether to start it now or until when to hold it, in the order of the jobs.

        Without an answer, all jobs may start.
        """
        series = body_as(HourlyValues, hours, field="hours.").model_dump(mode="json")
        return await self._each(calls.HOLD, jobs, most=MAX_PLANNED, trace=trace, by=by, hours=series)

    async def explanations(
        self,
        job: JobRow | Mapping[str, object],
        *,
        trace: str | None = None,
        top: int | None = None,
        quantile: Literal["p50", "p90"] | None = None,
    ) -> ExplainAnswer:
        """Return how many seconds each of the `top` features adds to a job's predicted run time."""
        return await self.call(calls.EXPLAIN, given({"job": job, "trace": trace, "top": top, "quantile": quantile}))

    async def what_if(
        self,
        job: JobRow | Mapping[str, object],
        resource: Resource,
        *,
        trace: str | None = None,
        points: int | None = None,
    ) -> WhatIfAnswer:
        """Predict a job's run time for several amounts of one resource."""
        return await self.call(
            calls.WHAT_IF, given({"job": job, "resource": resource, "trace": trace, "points": points})
        )

    async def feedback(
        self, finished: Sequence[FeedbackRow | Mapping[str, object]], *, trace: str | None = None
    ) -> FeedbackAnswer:
        """Report finished jobs; a job that is reported twice counts once.

        After a `ClientError`, report all of them again: perhaps not all were stored.
        """
        taken = await self._in_parts(calls.FEEDBACK, finished, lambda said: [said], trace=trace)
        return FeedbackAnswer(
            accepted=sum(each.accepted for each in taken),
            duplicates=sum(each.duplicates for each in taken),
            conflicts=sum(each.conflicts for each in taken),
            results=tuple(result for each in taken for result in each.results),
            brakes=tuple(dict.fromkeys(brake for each in taken for brake in each.brakes)),
        )

    async def modes(self) -> ModeAnswer:
        """Return the current modes and brakes, and the resources that finished jobs saved."""
        return await self.call(calls.MODES)

    async def set_mode(
        self,
        mode: Mode | None,
        *,
        trace: str | None = None,
        cluster: str | None = None,
        task_type: str | None = None,
        group: str | None = None,
    ) -> ModeChange:
        """Set the mode of a cluster, task type and group (None means all), and return the modes now set.

        If `mode` is None, unset this mode, so that the mode of a wider scope applies again. The call is never retried.
        """
        change = {"unset": True} if mode is None else {"mode": mode}
        where = {"trace": trace, "cluster": cluster, "task_type": task_type, "group": group}
        return await self.call(calls.SET_MODE, change | given(where))

    async def release_brake(
        self,
        *,
        trace: str | None = None,
        cluster: str | None = None,
        task_type: str | None = None,
        user: str | None = None,
        group: str | None = None,
    ) -> ModeChange:
        """Release all brakes of a cluster and task type, or that of a user or group; jobs are then shrunk again.

        Return the modes now set. A brake stops shrinking after too much harm. The call is never retried.
        """
        where = {"trace": trace, "cluster": cluster, "task_type": task_type, "user": user, "group": group}
        return await self.call(calls.SET_MODE, {"reset": True} | given(where))

    async def drift(self, *, trace: str | None = None, task_type: str | None = None) -> DriftAnswer:
        """Return the drift of the models: changes of accuracy since evaluation, and of inputs since training."""
        return await self.call(calls.DRIFT, trace=trace, task_type=task_type)

    async def models(self) -> ModelsAnswer:
        """Return the models that the token may use."""
        return await self.call(calls.MODELS)

    async def importances(self, name: str) -> ImportancesAnswer:
        """Return the importances of a model's features."""
        return await self.call(calls.IMPORTANCES, name=name)

    async def card(self, name: str) -> CardAnswer:
        """Return a model's card."""
        return await self.call(calls.CARD, name=name)

    async def ready(self) -> Ready:
        """Return the readiness of the worker that replies; no error is raised if it is not ready."""
        return await self._ask(
            Ready, Call(method="GET", path="/readyz", repeatable=True, expected=frozenset({200, 503}))
        )

    async def _ask(self, kind: type[Said], message: Call) -> Said:
        return read_answer(kind, await self.exchange.send(message, self.exchange.deadline()), message)

    async def _each(
        self, of: CallShape[Any], jobs: Sequence[Item], *, most: int = MAX_JOBS, **options: object
    ) -> list[Any]:  # Any: rows of any answer
        """Send jobs in parts, each part with `options`, and return one row per job, in order, with its `answer_id`."""

        def rows(said: Any) -> list[Any]:  # Any: the answer of any call
            return [row.model_copy(update={"answer_id": said.answer_id}) for row in of.rows_of(said)]

        return await self._in_parts(of, jobs, rows, most=most, **options)

    async def _in_parts(
        self,
        of: CallShape[Said],
        items: Sequence[Item],
        taken: Callable[[Said], list[Found]],
        *,
        most: int = MAX_JOBS,
        **options: object,
    ) -> list[Found]:
        """Send consecutive parts of a list, apply `taken` to each answer, and join the results in order.

        A part has at most `most` items, and at most `jobs_per_call`.
        """
        rows: list[Any] = rows_as(of.item, items, field=of.jobs)  # Any: rows of any call
        found: list[Found] = []
        deadline = self.exchange.deadline()
        for part in parts(rows, min(self.jobs_per_call, most)):
            message = message_of(of, with_jobs(of.jobs, part, **options))
            said = read_answer(of.answer, await self.exchange.send(message, deadline), message)
            check_ids([row.job_id for row in part], [row.job_id for row in of.rows_of(said)], message)
            found += taken(said)
        return found
