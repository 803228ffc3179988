"""Report ended jobs to the service, so that it learns at once: a poll of accounting over overlapping windows.

Accounting lags by seconds, and by hours after an outage of slurmdbd: most polls look back a little, some far. The
service counts a job once, however often it is reported. After harm, jobs that wait get their requests back.
"""

import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path
from typing import Final

from pydantic import ValidationError

from features.vocabulary import Status
from modelserve.amounts import is_below
from modelserve.client import Client
from modelserve.contract.feedback import FeedbackRow
from modelserve.contract.learning import FeedbackAnswer
from modelserve.errors import ClientError
from modelserve.wrong_values import fault_of
from pipelines.connect.files import replace_text
from pipelines.connect.slurm.accounting import EndedJob
from pipelines.connect.slurm.commands import jobs_between, sampling_interval_s
from pipelines.connect.slurm.restoration import Restorer
from pipelines.errors import SourceError

__all__ = ["report"]

NEAR: Final = timedelta(minutes=2)
FAR: Final = timedelta(hours=1)
FAR_EVERY: Final = timedelta(minutes=10)

Jobs = Callable[[datetime, datetime], Iterable[EndedJob]]
Say = Callable[[str], None]


@dataclass(slots=True, kw_only=True)
class Reporter:
    """Posts the jobs that ended since the last successful poll; `state` is the file that holds its time.

    `jobs` returns the ended jobs of a window. Jobs that were posted by this process are not sent again.
    """

    client: Client
    jobs: Jobs
    trace: str
    state: Path
    say: Say
    first: timedelta = FAR
    restorer: Restorer | None = None
    _posted: dict[tuple[str, str], datetime] = field(default_factory=dict)
    _far_at: datetime | None = None

    def poll(self, now: datetime) -> int:
        """Post the jobs that ended since the last poll; return how many the service had not counted before."""
        last = self._last()
        far = self._far_at is None or now - self._far_at >= FAR_EVERY
        since = now - self.first if last is None else min(last, now) - (FAR if far else NEAR)
        fresh = [
            job
            for job in self.jobs(since, now + timedelta(seconds=1))
            if job.start is not None and (job.cluster, job.run_id) not in self._posted
        ]
        answers = self._post(fresh)
        if self.restorer is not None:
            shrunk = [job for job in fresh if is_below(job.given.mem_gib, job.asked.mem_gib)]
            killed = {job.group for job in shrunk if job.status is Status.OOM}
            self.restorer.restore(now, killed, [brake for answer in answers for brake in answer.brakes])
        self._posted |= {(job.cluster, job.run_id): job.end for job in fresh}
        self._posted = {key: end for key, end in self._posted.items() if end > now - 2 * max(FAR, self.first)}
        self._far_at = now if far else self._far_at
        self._keep(now)
        return sum(answer.accepted for answer in answers)

    def _post(self, jobs: Sequence[EndedJob]) -> list[FeedbackAnswer]:
        """Report jobs by their ids; a conflict is a later run of a requeued job, which is reported by its run."""
        rows = list(self._rows(jobs))
        if not rows:
            return []
        answer = self.client.feedback([row for _, row in rows], trace=self.trace)
        places = [i for i, result in enumerate(answer.results) if result.status == "conflict"]
        again = [rows[i][1].model_copy(update={"job_id": rows[i][0].run_id}) for i in places]
        return [answer, *([self.client.feedback(again, trace=self.trace)] if again else [])]

    def _rows(self, jobs: Iterable[EndedJob]) -> Iterator[tuple[EndedJob, FeedbackRow]]:
        for job in jobs:
            try:
                yield job, row_of(job)
            except ValidationError as error:
                fault = error.errors()[0]
                self.say(f"job {job.number} is not reported: {'.'.join(map(str, fault['loc']))}: {fault_of(fault)}")

    def _last(self) -> datetime | None:
        try:
            return datetime.fromisoformat(self.state.read_text(encoding="utf-8").strip())
        except (OSError, ValueError):
            return None

    def _keep(self, now: datetime) -> None:
        try:
            replace_text(self.state, now.isoformat())
        except OSError as error:
            raise SourceError(f"--state {self.state}: {error.strerror}; expected a file that may be written") from error


def report(client: Client, *, trace: str, state: Path, every_s: float | None, say: Say) -> None:
    """Report ended jobs to the service until interrupted; without `every_s`, once."""
    jobs = partial(jobs_between, interval_s=sampling_interval_s())
    reporter = Reporter(client=client, jobs=jobs, trace=trace, state=state, say=say, restorer=Restorer(say=say))
    if every_s is None:
        say(f"reported {reporter.poll(datetime.now(UTC))} ended jobs")
    else:
        poll_forever(reporter, every_s=every_s, say=say)


def poll_forever(reporter: Reporter, *, every_s: float, say: Say) -> None:
    """Poll until interrupted; a poll that fails is reported and repeated."""
    failing = False
    while True:
        try:
            accepted = reporter.poll(datetime.now(UTC))
            if accepted or failing:
                say(f"reported {accepted} ended jobs")
            failing = False
        except (SourceError, ClientError) as error:
            if not failing:
                say(f"warning: {error}; goes on trying")
            failing = True
        time.sleep(every_s)


def row_of(job: EndedJob) -> FeedbackRow:
    """Return the report of a job: the original request, and what it was given."""
    return FeedbackRow.model_validate(
        {
            **job.names,
            "job_id": job.job_id,
            "instances": job.instances,
            "submit_ts": job.submit,
            "start_ts": job.start,
            "end_ts": job.end,
            "run_s": job.run_s,
            "outcome": str(job.status),
            "request": asdict(job.asked),
            "allocation": asdict(job.given),
            "used": {"cpu_cores": job.use.cpu_cores, "mem_max_gib": job.use.mem_most_gib},
            "answer_id": job.answer_id,
        }
    )
