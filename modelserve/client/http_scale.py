"""Algorithm 1 asked of a running service over HTTP, for rounds that must go on whatever becomes of the answer.

What is sent and what an answer may say is `wire`'s, connections are `exchange`'s, and when a failing service is left
alone `breaker`'s. Called by whoever schedules with a service, and by `taut simulate`.
"""

import json
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Final, Self

from modelserve.client.breaker import Breaker
from scheduler_core.errors import BadInput, PredictorUnavailable
from scheduler_core.exchange import OK, Exchange, Reply
from scheduler_core.shrink import Guard
from scheduler_core.types import Job, Recommendation
from scheduler_core.wire import Said, body_of, observed, read_answer, readable, stands, unaskable

PATH: Final = "/v1/recommendations"
MOST_JOBS_PER_CALL: Final = 10_000
ANSWER_BYTES: Final = 65_536
ANSWER_BYTES_PER_JOB: Final = 4_096
"""What an answer may weigh: a row of the service takes about 700 bytes."""

NOTE_LENGTH: Final = 300


@dataclass(slots=True)
class ModelVersions:
    """Which version of every model answered last; an older one may be a rollback, or a replica that lags behind."""

    _last: dict[str, int] = field(default_factory=dict)

    def older(self, models: Sequence[str]) -> str:
        """Take note of who answered, and return what is to be said of a version older than the one before.

        Examples
        --------
        >>> versions = ModelVersions()
        >>> [versions.older([f"runtime.pai.ctr@{version}"]) for version in (7, 6, 6)]
        ['', 'answered by runtime.pai.ctr@6 after @7', '']
        """
        said = []
        for model in models:
            name, _, version = model.rpartition("@")
            if name and version.isascii() and version.isdecimal() and len(version) < NOTE_LENGTH:
                before = self._last.get(name, 0)
                if int(version) < before:
                    said.append(f"answered by {model} after @{before}")
                self._last[name] = int(version)
        return "; ".join(said)


class HttpScale:
    """Ask a service how far the requests of a round's new jobs can shrink: an `advice.Scale`.

    It raises nothing and loses no job: where no answer comes in time, or none that can be meant, the request stands
    with `predictor_unavailable`, and the note says what was found. No target lies above its request or below the
    answer's own lower bound. An answer by an older model than the one before it is taken, and noted: it may be a
    rollback.

    Parameters
    ----------
    address
        Where the service is, as `http://127.0.0.1:8080`. Redirects are not followed.
    token, token_file
        Bearer token, or the file that holds it; it is sent to that address only, and never shown.
    ca_file
        PEM file of the authorities to trust; the system's own when None.
    deadline_s
        How long one round may take in all: connecting, sending, waiting and reading, over all its calls.
    jobs_per_call
        Longer rounds are asked about in several calls, one after another; what was answered in time stands.
    theta, alpha, guard
        Parameters of Algorithm 1 (`alpha` is the smallest share of a request that is tried); as the service is set
        when None. Only with guard `none` is a target believed that comes without a lower bound.
    heed_mode
        Whether requests stand where the service says `observe`; a simulation wants the targets all the same.
    breaker
        When the service is left alone; by default after three failed calls in a row, for 30 s.
    clock
        Monotonic seconds.

    Examples
    --------
    >>> from scheduler_core.types import Request
    >>> asked = Job(job_id="a", trace="pai", task_type="ctr", request=Request(cpu_cores=6.0, mem_gib=29.0, gpus=0.5))
    >>> with HttpScale("http://127.0.0.1:9") as scale:  # nobody listens there
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
        jobs_per_call: int = MOST_JOBS_PER_CALL,
        theta: float | None = None,
        alpha: float | None = None,
        guard: Guard | None = None,
        heed_mode: bool = True,
        breaker: Breaker | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        if not (0.0 < deadline_s <= 86_400.0 and 1 <= jobs_per_call <= MOST_JOBS_PER_CALL):
            raise BadInput(
                f"HTTP scale: found deadline_s={deadline_s}, jobs_per_call={jobs_per_call}; "
                f"expected seconds up to a day, and 1 to {MOST_JOBS_PER_CALL}"
            )
        self.deadline_s, self.jobs_per_call, self.heed_mode = deadline_s, jobs_per_call, heed_mode
        self.breaker = breaker or Breaker(clock=clock)
        self._exchange = Exchange(address, token=token, token_file=token_file, ca_file=ca_file, longest_s=deadline_s)
        self._options = {"theta": theta, "alpha": alpha, "guard": guard}
        self._versions = ModelVersions()
        self._clock = clock

    def __repr__(self) -> str:
        return f"HttpScale({self._exchange.address!r})"

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __call__(self, jobs: Sequence[Job]) -> list[Recommendation]:
        """Recommend a target for each job, in the order given."""
        deadline = self._clock() + self.deadline_s
        notes = [unaskable(job) for job in jobs]
        found = [stands(job, note) for job, note in zip(jobs, notes, strict=True)]
        for part in _parts([i for i, note in enumerate(notes) if not note], self.jobs_per_call):
            for i, answer in zip(part, self._advised([jobs[i] for i in part], deadline), strict=True):
                found[i] = answer
        return found

    def close(self) -> None:
        """Close the connections; requests stand from then on."""
        self._exchange.close()

    def _advised(self, jobs: Sequence[Job], deadline: float) -> list[Recommendation]:
        """Ask about the jobs of one call; whatever happens, each has a recommendation."""
        if self._clock() >= deadline:
            return self._standing(jobs, f"not asked about: the round's {self.deadline_s:g} s were over")
        if not self.breaker.admits():
            return self._standing(jobs, f"not asked about: the service failed, and rests {self.breaker.rest_s:.0f} s")
        asked_rest_s = 0.0
        try:
            said = self._said(jobs, deadline)
            if isinstance(said, Reply):
                asked_rest_s = said.asked_rest_s
                raise PredictorUnavailable(f"the service said {_refusal(said)}")
        except Exception as error:  # whatever a connection or an answer does, the scheduler goes on
            self.breaker.failed(asked_rest_s=asked_rest_s)
            kind = "" if isinstance(error, PredictorUnavailable) else f"{type(error).__name__}: "
            return self._standing(jobs, f"{self._exchange.address}: {kind}{error}")
        self.breaker.succeeded()
        older = self._versions.older(sorted({model for each in said for model in each.models}))
        answers = [
            each.recommendation if each.enforced or not self.heed_mode else observed(each.recommendation)
            for each in said
        ]
        return [replace(answer, note=self._note(answer.note, older)) for answer in answers]

    def _said(self, jobs: Sequence[Job], deadline: float) -> list[Said] | Reply:
        """Return what the service says of the jobs, or its reply where that is a refusal."""
        body = body_of(jobs, self._options)

        def read(reply: Reply) -> list[Said] | Reply:
            if reply.status != OK:
                return reply
            return read_answer(reply.content, jobs, floors_expected=self._options["guard"] != "none")

        return self._exchange.post(
            PATH,
            body,
            most_bytes=ANSWER_BYTES + ANSWER_BYTES_PER_JOB * len(jobs),
            left_s=max(deadline - self._clock(), 0.0),
            read=read,
        )

    def _standing(self, jobs: Sequence[Job], note: str) -> list[Recommendation]:
        note = self._note(note)
        return [stands(job, note) for job in jobs]

    def _note(self, *said: str) -> str:
        return readable(self._exchange.without_token("; ".join(filter(None, said)))[:NOTE_LENGTH])


def _refusal(reply: Reply) -> str:
    """Return a refusal in one line, with what its problem document tells (RFC 9457)."""
    try:
        problem = json.loads(reply.content)
    except (ValueError, RecursionError):
        problem = None
    told = [str(problem[key]) for key in ("title", "detail") if problem.get(key)] if isinstance(problem, dict) else []
    return " ".join([str(reply.status), ": ".join(told)]).strip()


def _parts(places: Sequence[int], most: int) -> Iterator[Sequence[int]]:
    for start in range(0, len(places), most):
        yield places[start : start + most]
