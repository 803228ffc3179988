"""Give waiting jobs their original requests back: those that were requeued, and those of a group that came to harm.

Slurm does not call job_submit for a job that it requeues, so the job would run again with what was too little.
"""

import json
import math
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any, Final

from modelserve.contract.learning import BrakeHeld
from pipelines.connect.slurm.commands import queue_json, update_job
from pipelines.connect.slurm.comment import read_comment
from pipelines.connect.slurm.submission import group_of
from pipelines.connect.slurm.tres import amount_of, counts_of, mib_of
from pipelines.errors import SourceError

EVERY: Final = timedelta(seconds=30)
"""Time between two looks at the queue without cause; a requeued job waits for two minutes."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ShrunkJob:
    """A waiting job, or the waiting part of an array; `words` of `scontrol update` give its original request back."""

    number: str
    requeued: bool
    user: str
    group: str | None
    words: Sequence[str]


def read_shrunk(text: str) -> Iterator[ShrunkJob]:
    """Yield the waiting jobs with less than they asked for, in `squeue --json` of any release from 22.05 on."""
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
    """Gives requests back by `scontrol update`, which Slurm allows its operators; each refusal is said once."""

    say: Callable[[str], None]
    queue: Callable[[], str] = queue_json
    update: Callable[[str, Sequence[str]], None] = update_job
    _looked_at: datetime | None = None
    _said: set[str] = field(default_factory=set)

    def restore(self, now: datetime, killed: Collection[str | None], brakes: Sequence[BrakeHeld]) -> None:
        """Give back the requests of waiting jobs: requeued ones, of groups with `killed` jobs, and of `brakes`."""
        if not killed and not brakes and self._looked_at is not None and now - self._looked_at < EVERY:
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
