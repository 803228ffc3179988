"""Report ended jobs to the service, and give waiting jobs their original requests back after harm.

Accounting lags by seconds, and by hours after an outage of slurmdbd, so most polls look back a little, some far. The
service counts a job once, even if it is reported again. Slurm does not call job_submit for a requeued job, so without
its original request the job would run again with too little.
"""

import json
import math
import time
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path
from typing import Any, Final

from pydantic import ValidationError

from features.vocabulary import Status
from modelserve.amounts import is_below
from modelserve.bundle.card import complaint
from modelserve.client import Client
from modelserve.contract.feedback import BrakeHeld, FeedbackAnswer, FeedbackRow
from modelserve.errors import ClientError
from pipelines.connect.files import replace_text
from pipelines.connect.slurm.accounting import EndedJob
from pipelines.connect.slurm.commands import jobs_between, queue_json, sampling_interval_s, update_job
from pipelines.connect.slurm.notation import amount_of, counts_of, mib_of, read_comment
from pipelines.connect.slurm.submission import group_of
from pipelines.errors import SourceError

__all__ = ["report"]

NEAR: Final = timedelta(minutes=2)
FAR: Final = timedelta(hours=1)
FAR_EVERY: Final = timedelta(minutes=10)
LOOK_EVERY: Final = timedelta(seconds=30)
"""Time between two regular looks at the queue; a requeued job waits for two minutes."""

Jobs = Callable[[datetime, datetime], Iterable[EndedJob]]
Say = Callable[[str], None]


@dataclass(slots=True, kw_only=True)
class Reporter:
    """Posts the jobs that ended since the last successful poll; the file `state` holds the time of that poll.

    `jobs` returns the jobs that ended in a period. A job that this process posted is sent again only if its status
    changed: Slurm may record later that it ran out of memory.
    """

    client: Client
    jobs: Jobs
    trace: str
    state: Path
    say: Say
    first: timedelta = FAR
    restorer: "Restorer | None" = None
    _posted: dict[tuple[str, str, Status], datetime] = field(default_factory=dict)
    _said: set[str] = field(default_factory=set)
    _far_at: datetime | None = None

    def poll(self, now: datetime) -> int:
        """Post the jobs that ended since the last poll; return how many of them the service had not counted before."""
        last = self._last()
        far = self._far_at is None or now - self._far_at >= FAR_EVERY
        since = now - self.first if last is None else min(last, now) - (FAR if far else NEAR)
        fresh = [
            job
            for job in self.jobs(since, now + timedelta(seconds=1))
            if job.start is not None and (job.cluster, job.run_id, job.status) not in self._posted
        ]
        answers = self._post(fresh)
        shrunk = [job for job in fresh if is_below(job.given.mem_gib, job.asked.mem_gib)]
        brakes = [brake for answer in answers for brake in answer.brakes]
        self._say_harm(shrunk, brakes)
        if self.restorer is not None:
            self.restorer.restore(now, {job.group for job in shrunk if job.status is Status.OOM}, brakes)
        self._posted |= {(job.cluster, job.run_id, job.status): job.end for job in fresh}
        self._posted = {key: end for key, end in self._posted.items() if end > now - 2 * max(FAR, self.first)}
        self._far_at = now if far else self._far_at
        self._keep(now)
        return sum(answer.accepted for answer in answers)

    def _say_harm(self, shrunk: Iterable[EndedJob], brakes: Iterable[BrakeHeld]) -> None:
        """Print which shrunk jobs failed or were killed, and each brake once."""
        for job in shrunk:
            if job.status in (Status.OOM, Status.FAILED):
                sizes = f"{job.given.mem_gib:.2f} of the {job.asked.mem_gib:.2f} GiB that it asked for"
                self.say(f"job {job.number} of {job.group} had {sizes}: {job.status}")
        held = {f"{each.group or each.user or each.task_type} is not shrunk any more: {each.why}" for each in brakes}
        for text in sorted(held - self._said):
            self.say(text)
        self._said |= held

    def _post(self, jobs: Sequence[EndedJob]) -> list[FeedbackAnswer]:
        """Report jobs by their ids; a conflict is a later run of a requeued job, which is reported by its run id."""
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
                self.say(f"job {job.number} is not reported: {complaint(error)}")

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
    """Report ended jobs to the service every `every_s` seconds until interrupted, or once without `every_s`."""
    jobs = partial(jobs_between, interval_s=sampling_interval_s())
    reporter = Reporter(client=client, jobs=jobs, trace=trace, state=state, say=say, restorer=Restorer(say=say))
    if every_s is None:
        say(f"reported {reporter.poll(datetime.now(UTC))} ended jobs")
    else:
        poll_forever(reporter, every_s=every_s, say=say)


def poll_forever(reporter: Reporter, *, every_s: float, say: Say) -> None:
    """Poll until interrupted; a failed poll is printed and repeated."""
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
    """Return the report of a job, with its original request and its allocation."""
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
            "request": job.asked.model_dump(),
            "allocation": job.given.model_dump(),
            "used": {"cpu_cores": job.use.cpu_cores, "mem_max_gib": job.use.mem_most_gib},
            "answer_id": job.answer_id,
        }
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class ShrunkJob:
    """A waiting job, or the waiting part of an array; `words` for `scontrol update` restore its original request."""

    number: str
    requeued: bool
    user: str
    group: str | None
    words: Sequence[str]


def read_shrunk(text: str) -> Iterator[ShrunkJob]:
    """Yield the waiting jobs that were shrunk, from `squeue --json` of any release from 22.05 on."""
    try:
        waiting = [row for row in json.loads(text)["jobs"] if "PENDING" in row["job_state"]]  # a text, or several
        yield from (job for job in map(_job, waiting) if job.words)
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        why = f"{type(error).__name__}: {str(error)[:100]}"
        raise SourceError(f"squeue --json: {why}; expected a list of jobs") from error


def _job(row: Mapping[str, Any]) -> ShrunkJob:  # Any: JSON of Slurm
    user, asked, tasks = row["user_name"], counts_of(row["tres_req_str"]), row.get("array_task_string") or ""
    machines = max(int(asked.get("node", "1")), 1)
    whole_array = not tasks or "..." in tasks
    return ShrunkJob(
        number=str(row["job_id"]) if whole_array else f"{row['job_id']}_[{tasks}]",
        requeued=_number(row["restart_cnt"]) > 0,
        user=user,
        group=group_of(user, row["name"], math.ceil(_number(row["tasks"]) / machines)),
        words=_updates(row["admin_comment"], amount_of(asked.get("cpu", "")), mib_of(asked.get("mem", "")), machines),
    )


def _number(value: Any) -> int:  # Any: a number, or in newer releases an object that holds it
    return int((value["number"] if isinstance(value, dict) else value) or 0)


def _updates(admin_comment: str, cpus: float | None, mem_mib: float | None, machines: int) -> list[str]:
    comment, words = read_comment(admin_comment), list[str]()
    asked_cpus, asked_mib = comment.original(cpus, mem_mib, machines)
    if asked_cpus is not None and asked_cpus != cpus:
        each = comment.changes["cpus-per-task"][0]
        words += [f"NumCPUs={asked_cpus:.0f}", f"CPUsPerTask={each}", f"MinCPUsNode={each}"]
    if asked_mib != mem_mib:
        fields = {"mem": "MinMemoryNode", "mem-per-cpu": "MinMemoryCPU"}
        words += [f"{field}={comment.changes[name][0]}" for name, field in fields.items() if name in comment.changes]
    return words


@dataclass(slots=True, kw_only=True)
class Restorer:
    """Gives requests back by `scontrol update`, which Slurm allows its operators; each refusal is printed once."""

    say: Callable[[str], None]
    queue: Callable[[], str] = queue_json
    update: Callable[[str, Sequence[str]], None] = update_job
    _looked_at: datetime | None = None
    _said: set[str] = field(default_factory=set)

    def restore(self, now: datetime, killed: Collection[str | None], brakes: Sequence[BrakeHeld]) -> None:
        """Give back the requests of waiting jobs that were requeued, or whose group has `killed` jobs or a brake."""
        if not killed and not brakes and self._looked_at is not None and now - self._looked_at < LOOK_EVERY:
            return
        self._looked_at = now
        try:
            for job in list(read_shrunk(self.queue())):
                if why := _why(job, killed, brakes):
                    self._give_back(job, why)
        except SourceError as error:
            self._warn(f"no request is given back: {error}")

    def _give_back(self, job: ShrunkJob, why: str) -> None:
        try:
            self.update(job.number, job.words)
            self.say(f"job {job.number}: gave back {' '.join(job.words)}, since {why}")
        except SourceError as error:
            self._warn(f"job {job.number} keeps its smaller request, although {why}: {error}")

    def _warn(self, text: str) -> None:
        if text not in self._said:
            self._said.add(text)
            self.say(f"warning: {text}")


def _why(job: ShrunkJob, killed: Collection[str | None], brakes: Sequence[BrakeHeld]) -> str:
    if job.requeued:
        return "it was requeued"
    if job.group is not None and job.group in killed:
        return "a job of its group was killed for memory"
    stops = (each for each in brakes if each.user in (None, job.user) and each.group in (None, job.group))
    return next((f"{each.group or each.user or each.task_type} is not shrunk any more" for each in stops), "")
