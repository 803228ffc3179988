"""`AsyncClient`: every call of the service as a coroutine that takes jobs and returns typed answers.

`modelserve.client.exchange` sends the calls. Called by asyncio programs and by the blocking `Client`.
"""

from collections.abc import Mapping, Sequence
from typing import Literal

from modelserve.bundle.card import Resource
from modelserve.client.advice import Advice, read_advice, rows_of, unchanged
from modelserve.client.calls import (
    check_ids,
    delete,
    fields,
    get,
    parts,
    post,
    read_answer,
    rows_as,
    segment,
    whole,
    with_job,
    with_list,
)
from modelserve.client.connected import Batch, Connected
from modelserve.contract.feedback import FeedbackRow
from modelserve.contract.fields import Minimums, Mode
from modelserve.contract.holds import Held, HoldAnswer, HoldJob, HourlyValues
from modelserve.contract.jobs import (
    ExplainAnswer,
    PredictAnswer,
    Prediction,
    RecentAnswer,
    RecommendAnswer,
    Recommended,
    WhatIfAnswer,
)
from modelserve.contract.learning import DriftAnswer, ErasureAnswer, FeedbackAnswer, ModeAnswer, ModeChange
from modelserve.contract.models import CardAnswer, ImportancesAnswer, ModelAnswer, ModelsAnswer, Ready
from modelserve.contract.placements import ClusterBody, PendingAnswer, PendingBody, PlaceAnswer
from modelserve.contract.plans import MAX_PLANNED, PlanAnswer, PlanBody
from modelserve.contract.requests import JobRow, RecommendJob
from modelserve.contract.reservations import MAX_RUNNING, ReserveAnswer, Reserved, RunningJob
from modelserve.contract.routes import RouteAnswer, RouteBody
from modelserve.errors import ClientError
from scheduler_core.types import Job

Jobs = Sequence[JobRow | Mapping[str, object]]


class AsyncClient(Connected):
    """A client of the prediction service for asyncio; `Connected` describes its parameters.

    Every call may raise `BadRequest` if what it is given is not valid, and `ClientError` if no answer came:
    `ServiceUnavailable`, `Refused` or `WrongAnswer`.
    """

    async def predictions(
        self,
        jobs: Jobs,
        *,
        trace: str | None = None,
        outputs: Sequence[Literal["run_time", "peak_use"]] | None = None,
    ) -> list[Prediction]:
        """Predict the run time and peak resource use of jobs; answers are in the order of the jobs."""
        of = Batch("/v1/predictions", PredictAnswer, lambda said: (said.answer_id, said.predictions))
        return await self.each(of, rows_as(JobRow, jobs), trace=trace, outputs=outputs)

    async def recommendations(
        self,
        jobs: Jobs,
        *,
        trace: str | None = None,
        theta: float | None = None,
        alpha: float | None = None,
        guard: Literal["usage", "none"] | None = None,
        floors: Minimums | None = None,
    ) -> list[Recommended]:
        """Recommend how far the requests of jobs can shrink; answers are in the order of the jobs.

        `theta`, `alpha`, `guard` and `floors` apply to every job of the call; a job may have its own `floors`.
        """
        least = None if floors is None else floors.model_dump(exclude_none=True)
        of = Batch("/v1/recommendations", RecommendAnswer, lambda said: (said.answer_id, said.recommendations))
        rows = rows_as(RecommendJob, jobs)
        return await self.each(of, rows, trace=trace, theta=theta, alpha=alpha, guard=guard, floors=least)

    async def recent_recommendations(self, *, trace: str | None = None, task_type: str | None = None) -> RecentAnswer:
        """Return the newest recommendations, the resources they freed, and the outcomes of their jobs."""
        return await self.ask(RecentAnswer, get("/v1/recommendations", trace=trace, task_type=task_type))

    async def recommend(self, jobs: Sequence[Job]) -> list[Advice]:
        """Recommend a target for each job of a scheduler, as `scheduler_core.shrink` does; raise no error.

        A job without a valid answer keeps its request, with the reason `predictor_unavailable`; `note` holds the cause.
        """
        rows, notes = rows_of(jobs)
        found = [unchanged(job, note) for job, note in zip(jobs, notes, strict=True)]
        valid = [(job, row) for job, row in zip(jobs, rows, strict=True) if row is not None]
        places = [i for i, row in enumerate(rows) if row is not None]
        deadline = self.exchange.deadline()
        for part, at in zip(parts(valid, self.jobs_per_call), parts(places, self.jobs_per_call), strict=True):
            try:
                answers = await self.halved(part, self._advice, deadline)
            except ClientError as error:
                answers = [unchanged(job, str(error)) for job, _ in part]
            for i, answer in zip(at, answers, strict=True):
                found[i] = answer
        return found

    async def _advice(self, part: Sequence[tuple[Job, RecommendJob]], deadline: float) -> list[Advice]:
        call = post("/v1/recommendations", with_list("jobs", [row for _, row in part]), repeatable=True)
        # Do not expect lower bounds, since the settings of the service may allow targets without them.
        content = await self.exchange.send(call, deadline)
        return read_advice(content, [job for job, _ in part], call, floors_expected=False)

    async def reservations(
        self, jobs: Sequence[RunningJob | Mapping[str, object]], *, trace: str | None = None
    ) -> list[Reserved]:
        """Return what to reserve for running jobs, given their samples; answers are in the order of the jobs.

        The `statistics` of an answer may be sent with the job's newer samples in its next call.

        Wrong samples are no error: the answer lists them, and the job's request stands. Without an answer, all requests
        stand.
        """
        of = Batch("/v1/reservations", ReserveAnswer, lambda said: (said.answer_id, said.reservations))
        return await self.each(of, rows_as(RunningJob, jobs), most=MAX_RUNNING, trace=trace)

    async def routes(self, call: RouteBody | Mapping[str, object]) -> RouteAnswer:
        """Return the site where each waiting job starts now, and why; sites and jobs are sent in one call."""
        [body] = rows_as(RouteBody, [call], field="calls")
        return await self.ask_about(
            body.jobs, RouteAnswer, post("/v1/route", whole(body), repeatable=True), lambda said: said.routes
        )

    async def placements(self, cluster: ClusterBody | Mapping[str, object]) -> PlaceAnswer:
        """Return where each waiting job of a cluster starts now, and why; the cluster is sent in one call."""
        [body] = rows_as(ClusterBody, [cluster], field="clusters")
        return await self.ask_about(
            body.jobs, PlaceAnswer, post("/v1/placements", whole(body), repeatable=True), lambda said: said.placements
        )

    async def explain_pending(
        self, cluster: ClusterBody | Mapping[str, object], *, job_ids: Sequence[str] | None = None
    ) -> PendingAnswer:
        """Return why jobs of a cluster wait, and what would start them; `job_ids` None: the first in queue order."""
        [body] = rows_as(ClusterBody, [cluster], field="clusters")
        asked = {**body.model_dump(exclude_unset=True), **({} if job_ids is None else {"explain": tuple(job_ids)})}
        [pending] = rows_as(PendingBody, [asked], field="clusters")
        return await self.ask(PendingAnswer, post("/v1/explain-pending", whole(pending), repeatable=True))

    async def plan(self, body: PlanBody | Mapping[str, object]) -> PlanAnswer:
        """Return which jobs run now on what, within a carbon budget or at least cost.

        Without an answer, all jobs go on as they are.
        """
        [asked] = rows_as(PlanBody, [body], field="plan")
        return await self.ask_about(
            asked.jobs, PlanAnswer, post("/v1/plan", whole(asked), repeatable=True), lambda said: said.plans
        )

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
        (series,) = rows_as(HourlyValues, [hours], field="hours")
        given = series.model_dump(mode="json")
        of = Batch("/v1/hold", HoldAnswer, lambda said: (said.answer_id, said.holds))
        return await self.each(of, rows_as(HoldJob, jobs), most=MAX_PLANNED, trace=trace, by=by, hours=given)

    async def explanations(
        self,
        job: JobRow | Mapping[str, object],
        *,
        trace: str | None = None,
        top: int | None = None,
        quantile: Literal["p50", "p90"] | None = None,
    ) -> ExplainAnswer:
        """Return how many seconds each of the `top` features adds to a job's predicted run time."""
        [row] = rows_as(JobRow, [job])
        call = post("/v1/explanations", with_job(row, trace=trace, top=top, quantile=quantile), repeatable=True)
        return await self.ask_about([row], ExplainAnswer, call, lambda said: [said])

    async def what_if(
        self,
        job: JobRow | Mapping[str, object],
        resource: Resource,
        *,
        trace: str | None = None,
        points: int | None = None,
    ) -> WhatIfAnswer:
        """Predict a job's run time for several amounts of one resource."""
        [row] = rows_as(JobRow, [job])
        call = post("/v1/what-if", with_job(row, resource=resource, trace=trace, points=points), repeatable=True)
        return await self.ask_about([row], WhatIfAnswer, call, lambda said: [said])

    async def feedback(
        self, finished: Sequence[FeedbackRow | Mapping[str, object]], *, trace: str | None = None
    ) -> FeedbackAnswer:
        """Report finished jobs; a job that is reported twice counts once.

        After a `ClientError`, report all of them again: perhaps not all were stored.
        """

        async def send(part: Sequence[FeedbackRow], deadline: float) -> list[FeedbackAnswer]:
            call = post("/v1/feedback", with_list("feedback", part, trace=trace), repeatable=True)
            said = read_answer(FeedbackAnswer, await self.exchange.send(call, deadline), call)
            check_ids([row.job_id for row in part], [result.job_id for result in said.results], call)
            return [said]

        taken = await self.in_parts(rows_as(FeedbackRow, finished, field="feedback"), send)
        return FeedbackAnswer(
            accepted=sum(each.accepted for each in taken),
            duplicates=sum(each.duplicates for each in taken),
            conflicts=sum(each.conflicts for each in taken),
            results=tuple(result for each in taken for result in each.results),
        )

    async def modes(self) -> ModeAnswer:
        """Return the current modes and brakes, and the resources that finished jobs saved."""
        return await self.ask(ModeAnswer, get("/v1/mode"))

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

        If `mode` is None, unset the mode there, so that the mode of a wider scope applies again. The call is never
        retried.
        """
        unset = True if mode is None else None
        body = fields(mode=mode, unset=unset, trace=trace, cluster=cluster, task_type=task_type, group=group)
        return await self.ask(ModeChange, post("/v1/mode", body, repeatable=False))

    async def release_brake(
        self, *, trace: str | None = None, cluster: str | None = None, task_type: str | None = None
    ) -> ModeChange:
        """Release the brake on a task type, whose jobs are then shrunk again; return the modes now set.

        A brake stops the shrinking of a type after too many kills. The call is never retried.
        """
        body = fields(reset=True, trace=trace, cluster=cluster, task_type=task_type)
        return await self.ask(ModeChange, post("/v1/mode", body, repeatable=False))

    async def drift(self, *, trace: str | None = None, task_type: str | None = None) -> DriftAnswer:
        """Return the drift of the models: changes of accuracy since evaluation, and of inputs since training."""
        return await self.ask(DriftAnswer, get("/v1/drift", trace=trace, task_type=task_type))

    async def erase_user(self, user: str, *, trace: str, cluster: str | None = None) -> ErasureAnswer:
        """Delete a user's history in one cluster (None: all); the call is never retried."""
        return await self.ask(ErasureAnswer, delete(f"/v1/users/{segment(user)}/history", trace=trace, cluster=cluster))

    async def models(self) -> ModelsAnswer:
        """Return the models that the token may use."""
        return await self.ask(ModelsAnswer, get("/v1/models"))

    async def model(self, name: str) -> ModelAnswer:
        """Return one model; its name is `runtime.<trace>.<type>` or `usage.<trace>.<type>`."""
        return await self.ask(ModelAnswer, get(f"/v1/models/{segment(name)}"))

    async def importances(self, name: str) -> ImportancesAnswer:
        """Return the importances of a model's features."""
        return await self.ask(ImportancesAnswer, get(f"/v1/models/{segment(name)}/importances"))

    async def card(self, name: str) -> CardAnswer:
        """Return a model's card."""
        return await self.ask(CardAnswer, get(f"/v1/models/{segment(name)}/card"))

    async def ready(self) -> Ready:
        """Return the readiness of the worker that replies; no error is raised if it is not ready."""
        return await self.ask(Ready, get("/readyz", expected=frozenset({200, 503})))
