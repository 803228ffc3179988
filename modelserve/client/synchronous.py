"""`Client`: the calls of `AsyncClient` as blocking methods.

`AsyncClient` describes the calls in full. Called by schedulers, scripts and the commands.
"""

from collections.abc import Mapping, Sequence
from typing import Literal

from modelserve.bundle.card import Resource
from modelserve.client.advice import Advice, unchanged
from modelserve.client.asynchronous import Jobs
from modelserve.client.waiting import Waiting
from modelserve.contract.feedback import FeedbackRow
from modelserve.contract.fields import Minimums, Mode
from modelserve.contract.holds import Held, HoldJob, HourlyValues
from modelserve.contract.jobs import ExplainAnswer, Prediction, RecentAnswer, Recommended, WhatIfAnswer
from modelserve.contract.learning import DriftAnswer, ErasureAnswer, FeedbackAnswer, ModeAnswer, ModeChange
from modelserve.contract.models import CardAnswer, ImportancesAnswer, ModelAnswer, ModelsAnswer, Ready
from modelserve.contract.placements import ClusterBody, PendingAnswer, PlaceAnswer
from modelserve.contract.plans import PlanAnswer, PlanBody
from modelserve.contract.requests import JobRow
from modelserve.contract.reservations import Reserved, RunningJob
from modelserve.contract.routes import RouteAnswer, RouteBody
from modelserve.errors import ClientError
from scheduler_core.types import Job


class Client(Waiting):
    """A blocking client of the prediction service, with the parameters and calls of `AsyncClient`.

    Safe from several threads.

    Examples
    --------
    >>> from modelserve.client.policy import Retries
    >>> from scheduler_core.types import Request
    >>> asked = Job(job_id="a", trace="pai", task_type="ctr", request=Request(cpu_cores=6.0, mem_gib=29.0, gpus=0.5))
    >>> with Client("http://127.0.0.1:9", retries=Retries(tries=1)) as client:  # no service runs there
    ...     [answer] = client.recommend([asked])
    >>> answer.target == asked.request, str(answer.reasons["gpus"])
    (True, 'predictor_unavailable')
    """

    def predictions(
        self,
        jobs: Jobs,
        *,
        trace: str | None = None,
        outputs: Sequence[Literal["run_time", "peak_use"]] | None = None,
    ) -> list[Prediction]:
        """Predict the run time and peak resource use of jobs; see `AsyncClient.predictions`."""
        return self.wait(lambda client: client.predictions(jobs, trace=trace, outputs=outputs))

    def recommendations(
        self,
        jobs: Jobs,
        *,
        trace: str | None = None,
        theta: float | None = None,
        alpha: float | None = None,
        guard: Literal["usage", "none"] | None = None,
        floors: Minimums | None = None,
    ) -> list[Recommended]:
        """Recommend how far the requests of jobs can shrink; see `AsyncClient.recommendations`."""
        return self.wait(
            lambda client: client.recommendations(
                jobs, trace=trace, theta=theta, alpha=alpha, guard=guard, floors=floors
            )
        )

    def recent_recommendations(self, *, trace: str | None = None, task_type: str | None = None) -> RecentAnswer:
        """Return the newest recommendations, the resources they freed, and the outcomes of their jobs."""
        return self.wait(lambda client: client.recent_recommendations(trace=trace, task_type=task_type))

    def recommend(self, jobs: Sequence[Job]) -> list[Advice]:
        """Recommend a target for each job of a scheduler; raise no error; see `AsyncClient.recommend`."""
        try:
            return self.wait(lambda client: client.recommend(jobs))
        except ClientError as error:
            return [unchanged(job, str(error)) for job in jobs]

    def reservations(
        self, jobs: Sequence[RunningJob | Mapping[str, object]], *, trace: str | None = None
    ) -> list[Reserved]:
        """Return what to reserve for running jobs, given their samples; see `AsyncClient.reservations`."""
        return self.wait(lambda client: client.reservations(jobs, trace=trace))

    def routes(self, call: RouteBody | Mapping[str, object]) -> RouteAnswer:
        """Return the site where each waiting job starts now, and why; see `AsyncClient.routes`."""
        return self.wait(lambda client: client.routes(call))

    def placements(self, cluster: ClusterBody | Mapping[str, object]) -> PlaceAnswer:
        """Return where each waiting job of a cluster starts now, and why; see `AsyncClient.placements`."""
        return self.wait(lambda client: client.placements(cluster))

    def explain_pending(
        self, cluster: ClusterBody | Mapping[str, object], *, job_ids: Sequence[str] | None = None
    ) -> PendingAnswer:
        """Return why jobs of a cluster wait, and what would start them; see `AsyncClient.explain_pending`."""
        return self.wait(lambda client: client.explain_pending(cluster, job_ids=job_ids))

    def plan(self, body: PlanBody | Mapping[str, object]) -> PlanAnswer:
        """Return which jobs run now on what, within a carbon budget or at least cost; see `AsyncClient.plan`."""
        return self.wait(lambda client: client.plan(body))

    def holds(
        self,
        jobs: Sequence[HoldJob | Mapping[str, object]],
        *,
        by: Literal["carbon", "price"],
        hours: HourlyValues | Mapping[str, object],
        trace: str | None = None,
    ) -> list[Held]:
        """Return for each job whether to start it now or until when to hold it; see `AsyncClient.holds`."""
        return self.wait(lambda client: client.holds(jobs, by=by, hours=hours, trace=trace))

    def explanations(
        self,
        job: JobRow | Mapping[str, object],
        *,
        trace: str | None = None,
        top: int | None = None,
        quantile: Literal["p50", "p90"] | None = None,
    ) -> ExplainAnswer:
        """Return how many seconds features add to a job's predicted run time; see `AsyncClient.explanations`."""
        return self.wait(lambda client: client.explanations(job, trace=trace, top=top, quantile=quantile))

    def what_if(
        self,
        job: JobRow | Mapping[str, object],
        resource: Resource,
        *,
        trace: str | None = None,
        points: int | None = None,
    ) -> WhatIfAnswer:
        """Predict a job's run time for several amounts of one resource."""
        return self.wait(lambda client: client.what_if(job, resource, trace=trace, points=points))

    def feedback(
        self, finished: Sequence[FeedbackRow | Mapping[str, object]], *, trace: str | None = None
    ) -> FeedbackAnswer:
        """Report finished jobs; see `AsyncClient.feedback`."""
        return self.wait(lambda client: client.feedback(finished, trace=trace))

    def modes(self) -> ModeAnswer:
        """Return the current modes and brakes, and the resources that finished jobs saved."""
        return self.wait(lambda client: client.modes())

    def set_mode(
        self,
        mode: Mode | None,
        *,
        trace: str | None = None,
        cluster: str | None = None,
        task_type: str | None = None,
        group: str | None = None,
    ) -> ModeChange:
        """Set or unset the mode of a cluster, task type and group; see `AsyncClient.set_mode`."""
        return self.wait(
            lambda client: client.set_mode(mode, trace=trace, cluster=cluster, task_type=task_type, group=group)
        )

    def release_brake(
        self, *, trace: str | None = None, cluster: str | None = None, task_type: str | None = None
    ) -> ModeChange:
        """Release the brake on a task type; see `AsyncClient.release_brake`."""
        return self.wait(lambda client: client.release_brake(trace=trace, cluster=cluster, task_type=task_type))

    def drift(self, *, trace: str | None = None, task_type: str | None = None) -> DriftAnswer:
        """Return the drift of the models: changes of accuracy since evaluation, and of inputs since training."""
        return self.wait(lambda client: client.drift(trace=trace, task_type=task_type))

    def erase_user(self, user: str, *, trace: str, cluster: str | None = None) -> ErasureAnswer:
        """Delete a user's history; see `AsyncClient.erase_user`."""
        return self.wait(lambda client: client.erase_user(user, trace=trace, cluster=cluster))

    def models(self) -> ModelsAnswer:
        """Return the models that the token may use."""
        return self.wait(lambda client: client.models())

    def model(self, name: str) -> ModelAnswer:
        """Return one model; its name is `runtime.<trace>.<type>` or `usage.<trace>.<type>`."""
        return self.wait(lambda client: client.model(name))

    def importances(self, name: str) -> ImportancesAnswer:
        """Return the importances of a model's features."""
        return self.wait(lambda client: client.importances(name))

    def card(self, name: str) -> CardAnswer:
        """Return a model's card."""
        return self.wait(lambda client: client.card(name))

    def ready(self) -> Ready:
        """Return the readiness of the worker that replies; no error is raised if it is not ready."""
        return self.wait(lambda client: client.ready())
