"""Recommendations from a running service over HTTP, for schedulers that must go on if no answer comes.

`modelserve.client.exchange` sends the calls, `modelserve.client.advice` reads the answers, and the circuit breaker in
`modelserve.client.policy` pauses calls to a failing service. Called by schedulers and by `taut simulate`.
"""

import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Final, Self

import httpx2

from modelserve.client.advice import NOTE_LENGTH, Advice, observed, read_advice, rows_of, unchanged, writable
from modelserve.client.calls import OK, Call, Reply, parts, post, problem_of, problem_text, with_list
from modelserve.client.exchange import DROPPED, Exchange, token_from
from modelserve.client.policy import Breaker, Timeouts, retry_after_s
from modelserve.client.waiting import LoopThread
from modelserve.contract.fields import Guard
from modelserve.contract.requests import MAX_JOBS, RecommendJob
from modelserve.errors import BadRequest, ClientError
from scheduler_core.types import Job, Reason, Recommendation

__all__ = ["HttpScale"]

PATH: Final = "/v1/recommendations"
ANSWER_BYTES: Final = 65_536
ANSWER_BYTES_PER_JOB: Final = 4_096
"""Maximum bytes of an answer for each job, in addition to `ANSWER_BYTES`; the service writes about 700 for a job."""


@dataclass(slots=True)
class ModelVersions:
    """The version of each model in its last answer, to notice rollbacks and replicas that lag behind."""

    _last: dict[str, int] = field(default_factory=dict)

    def older(self, models: Sequence[str]) -> str:
        """Record the models of an answer; return a note about models with an older version than in their last answer.

        Examples
        --------
        >>> versions = ModelVersions()
        >>> [versions.older([f"runtime.pai.ctr@{version}"]) for version in (7, 6, 6)]
        ['', 'answered by runtime.pai.ctr@6 after @7', '']
        """
        notes = []
        for model in models:
            name, _, version = model.rpartition("@")
            if name and version.isascii() and version.isdecimal() and len(version) < NOTE_LENGTH:
                before = self._last.get(name, 0)
                if int(version) < before:
                    notes.append(f"answered by {model} after @{before}")
                self._last[name] = int(version)
        return "; ".join(notes)


class HttpScale:
    """Callable that asks a service how far the requests of new jobs can shrink, once in each scheduling round.

    A call raises no error and returns a recommendation for every job. If no valid answer comes in time, a job keeps its
    request, with the reason `predictor_unavailable` and the cause in the note. No target is above its request, or below
    the lower bound in the answer. An answer by an older model version than the last one is used, with a note, since it
    may be a rollback. It is a `scheduler_core.recommendations.Scale`.

    Parameters
    ----------
    address
        Address of the service, such as `http://127.0.0.1:8080`. Redirects are not followed.
    token, token_file
        Bearer token, or the file that holds it; it is sent to `address` only, and never part of a note.
    ca_file
        PEM file of the trusted certificate authorities; None means those of the system.
    deadline_s
        Maximum seconds for one round: connecting, sending, waiting and reading, for all its HTTP calls together.
    jobs_per_call
        Maximum number of jobs in one HTTP call. More jobs are sent in several calls, one after another; answers that
        come in time are used.
    theta, alpha, guard
        Parameters of Algorithm 1 (`scheduler_core.shrink`); None means the setting of the service. `alpha` is the
        smallest share of a request that is tried. A target without a lower bound is accepted only with guard `none`.
    heed_mode
        Whether jobs keep their requests if the service's mode for them is `observe`. If False, targets are used in
        either mode, as in a simulation.
    breaker
        Circuit breaker; by default it pauses calls for 30 s after three failed calls in a row.
    clock
        Function that returns monotonic time in seconds.

    Raises
    ------
    BadRequest
        A parameter is not valid.

    Examples
    --------
    >>> from scheduler_core.types import Request
    >>> asked = Job(job_id="a", trace="pai", task_type="ctr", request=Request(cpu_cores=6.0, mem_gib=29.0, gpus=0.5))
    >>> with HttpScale("http://127.0.0.1:9") as scale:  # no service runs there
    ...     [answer] = scale([asked])
    >>> answer.target == asked.request, str(answer.reasons["gpus"])
    (True, 'predictor_unavailable')
    """

    def __init__(
        self,
        address: str,
        *,
        token: str | None = None,
        token_file: Path | None = None,
        ca_file: Path | None = None,
        deadline_s: float = 2.0,
        jobs_per_call: int = MAX_JOBS,
        theta: float | None = None,
        alpha: float | None = None,
        guard: Guard | None = None,
        heed_mode: bool = True,
        breaker: Breaker | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        if not (0.0 < deadline_s <= 86_400.0 and 1 <= jobs_per_call <= MAX_JOBS):
            raise BadRequest(
                f"HTTP scale: found deadline_s={deadline_s}, jobs_per_call={jobs_per_call}; "
                f"expected seconds up to a day, and 1 to {MAX_JOBS}"
            )
        self.address, self.deadline_s, self.jobs_per_call, self.heed_mode = (
            address,
            deadline_s,
            jobs_per_call,
            heed_mode,
        )
        self.breaker = breaker or Breaker(clock=clock)
        self._token = token_from(token, token_file)
        timeouts = Timeouts(connect_s=deadline_s, answer_s=deadline_s, total_s=deadline_s)
        self._thread = LoopThread(lambda: Exchange([address], token=self._token, ca_file=ca_file, timeouts=timeouts))
        self._options = {"theta": theta, "alpha": alpha, "guard": guard}
        self._versions = ModelVersions()
        self._clock = clock

    def __repr__(self) -> str:
        return f"HttpScale({self.address!r})"

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __call__(self, jobs: Sequence[Job]) -> list[Recommendation]:
        """Recommend a target for each job, in the order of `jobs`."""
        deadline = self._clock() + self.deadline_s
        rows, notes = rows_of(jobs)
        found = [unchanged(job, note).recommendation for job, note in zip(jobs, notes, strict=True)]
        valid = [(i, row) for i, row in enumerate(rows) if row is not None]
        for part in parts(valid, self.jobs_per_call):
            answers = self._answers([jobs[i] for i, _ in part], [row for _, row in part], deadline)
            for (i, _), answer in zip(part, answers, strict=True):
                found[i] = answer
        return found

    def close(self) -> None:
        """Close the connections; in later rounds all jobs keep their requests."""
        self._thread.close()

    def _answers(self, jobs: Sequence[Job], rows: Sequence[RecommendJob], deadline: float) -> list[Recommendation]:
        """Send one call and return a recommendation for every job, also if the call fails."""
        if not jobs:
            return []
        if self._clock() >= deadline:
            return self._unchanged(jobs, f"not sent: the round's {self.deadline_s:g} s were over")
        if not self.breaker.admits():
            return self._unchanged(jobs, f"not sent: the service failed, and rests {self.breaker.rest_s:.0f} s")
        rest_s = 0.0
        try:
            outcome = self._exchanged(jobs, rows, deadline)
            if isinstance(outcome, Reply):
                rest_s = retry_after_s(outcome.retry_after, datetime.now(UTC))
                raise ClientError(f"the service replied {problem_text(outcome.status, problem_of(outcome))}")
        except Exception as error:  # any error: the scheduler must go on
            self.breaker.failed(asked_rest_s=rest_s)
            kind = "" if isinstance(error, ClientError) else f"{type(error).__name__}: "
            return self._unchanged(jobs, f"{self.address}: {kind}{error}")
        self.breaker.succeeded()
        older = self._versions.older(sorted({model for advice in outcome for model in advice.models}))
        answers = [self._followed(advice) for advice in outcome]
        return [replace(answer, note=self._note(answer.note, older)) for answer in answers]

    def _followed(self, advice: Advice) -> Recommendation:
        predicted = Reason.PREDICTOR_UNAVAILABLE not in advice.reasons.values()
        follows = advice.mode == "enforce" or not self.heed_mode
        return observed(advice.recommendation) if predicted and not follows else advice.recommendation

    def _exchanged(self, jobs: Sequence[Job], rows: Sequence[RecommendJob], deadline: float) -> list[Advice] | Reply:
        """Send one call and return the advice for the jobs, or the reply if its status is not 200."""
        most_bytes = ANSWER_BYTES + ANSWER_BYTES_PER_JOB * len(jobs)
        call = post(PATH, with_list("jobs", rows, **self._options), repeatable=True, most_bytes=most_bytes)

        async def read(exchange: Exchange) -> list[Advice] | Reply:
            reply = await _sent(exchange, call)
            if reply.status not in OK:
                return reply
            return read_advice(reply.content, jobs, call, floors_expected=self._options["guard"] != "none")

        try:
            return self._thread.run(read, max(deadline - self._clock(), 0.0))
        except (TimeoutError, httpx2.TimeoutException):
            raise ClientError(f"found no whole answer in time: the deadline of {self.deadline_s:g} s passed") from None

    def _unchanged(self, jobs: Sequence[Job], note: str) -> list[Recommendation]:
        note = self._note(note)
        return [unchanged(job, note).recommendation for job in jobs]

    def _note(self, *texts: str) -> str:
        # Hide the token, in case the service repeats it in a message.
        text = "; ".join(filter(None, texts))
        return writable(text if self._token is None else text.replace(self._token, "***"))[:NOTE_LENGTH]


async def _sent(exchange: Exchange, call: Call) -> Reply:
    """Send a call; if the connection was lost, send it once more."""
    with suppress(*DROPPED):
        return await exchange.once(call)
    return await exchange.once(call)
