"""Read `sacct`'s text and add up the steps of each job: its request, its allocation and its use.

`sacct` runs without `-X`, since only the steps hold the use; `commands.py` starts it.
"""

import math
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Final

from features.vocabulary import Status
from modelserve.contract.jobs import Amounts
from pipelines.connect.slurm.notation import amount_of, counts_of, mib_of, read_comment, seconds_of
from pipelines.connect.slurm.steps import Step, Use, folded_use
from pipelines.connect.slurm.submission import MIB_PER_GIB, group_of
from pipelines.errors import SourceError
from pipelines.lake.generic.conversions import SLURM_STATES

FIELDS: Final = (
    "Cluster", "JobIDRaw", "JobID", "User", "Partition", "Submit", "Start", "End", "ElapsedRaw", "State",
    "ExitCode", "DerivedExitCode", "NNodes", "NTasks", "ReqTRES", "AllocTRES", "TotalCPU", "MaxRSS", "TRESUsageInTot",
    "TimelimitRaw", "AdminComment", "JobName",
)  # fmt: skip
"""Fields requested from `sacct`. The last fields hold free text, which may have line ends."""

OPTIONAL: Final = frozenset({"Cluster", "ExitCode", "DerivedExitCode", "TimelimitRaw", "AdminComment", "AllocTRES"})
NEEDED: Final = frozenset(FIELDS) - OPTIONAL
_HEADER: Final = re.compile(r"[A-Za-z]+([^A-Za-z]+)[A-Za-z]")
"""The header's first field and the separator after it. sacct prints this line, so no job's name can change it."""

LEAST_SEPARATOR: Final = 5
"""Fewest characters of a separator of fields."""

ONGOING: Final = frozenset({Status.RUNNING, Status.WAITING})
NEVER_STARTED: Final = frozenset({Status.CANCELLED, Status.TIMEOUT})
"""States in which a job may end while it waits; Slurm then records its end as its start, and no steps."""
REQUEUED: Final = "REQUEUED"
"""State of a run whose job was requeued later; Slurm replaces the run's state and end by this state and that time."""
OUT_OF_MEMORY: Final = 125
"""Signal by which Slurm marks the exit code of a job or step that ran out of memory; the kernel has no such signal."""
KILL: Final = 9
"""Signal of the kernel's OOM killer; Slurm and other programs may send it for other reasons."""
SHELL_OF_SIGNAL: Final = 128
"""Number that a shell adds to the signal that ended a program; the sum is the exit code."""
_STEP: Final = re.compile(r"^\d+\.(?P<step>.+)$")
_NO_TIME: Final = frozenset({"", "None", "Unknown", "N/A"})


@dataclass(frozen=True, slots=True, kw_only=True)
class EndedJob:
    """One ended run of a job: `asked` is the original request, `given` the request after a change at submission.

    Amounts are per machine; `instances` is the requested number of machines. `tasks` is the largest number of tasks in
    a step. `job_id` is Slurm's raw id, which a requeued job keeps; `run_id` differs for each run. `number` is the id as
    users write it, such as 68_149.
    """

    cluster: str
    job_id: str
    run_id: str
    number: str
    user: str | None
    name: str
    partition: str | None
    submit: datetime
    start: datetime | None
    end: datetime
    run_s: float
    status: Status
    instances: int
    tasks: int
    gpu_type: str | None
    asked: Amounts
    given: Amounts
    use: Use
    time_limit_s: float | None
    answer_id: str | None

    @property
    def group(self) -> str | None:
        """The group of similar jobs, as at submission; the tasks of the largest step count as the requested tasks."""
        return group_of(self.user, self.name, math.ceil(self.tasks / self.instances))

    @property
    def names(self) -> dict[str, str | None]:
        """The fields that name the job, as in calls of the service and in the lake."""
        texts = (self.cluster, self.user, self.group, self.partition, self.gpu_type)
        return dict(zip(("cluster", "user", "group", "vc", "gpu_type"), texts, strict=True))


def read_jobs(text: str, *, cluster: str, interval_s: float) -> Iterator[EndedJob]:
    """Yield the ended jobs in `sacct`'s text, in the order of the text; waiting and running jobs are left out.

    Parameters
    ----------
    text
        Output of `sacct -P` with a header and the fields `NEEDED`; times are in UTC.
    cluster
        Name of the cluster if the text has no field `Cluster`.
    interval_s
        Seconds between two samples of use (JobAcctGatherFrequency).
    """
    rows = list(_rows(text))
    steps: dict[tuple[str, str], list[Step]] = {}
    jobs: list[tuple[tuple[str, str], Mapping[str, str]]] = []
    current = ("", "")
    for row in rows:
        found = _STEP.match(row["JobIDRaw"])
        if found is None:
            current = (row["JobIDRaw"], row["Submit"])
            jobs.append((current, row))
        else:  # steps follow their job, and requeued runs of one id follow one another
            steps.setdefault(current, []).append(_step(row))
    for key, row in jobs:
        status = _status(row, steps.get(key, ()))
        end = _time(row["End"])
        if status is not None and status not in ONGOING and end is not None:
            if row["State"] == REQUEUED:
                end = max((step.end for step in steps[key] if step.end is not None), default=end)
            yield _folded(row, status, end, steps.get(key, ()), cluster=cluster, interval_s=interval_s)


def _rows(text: str) -> Iterator[Mapping[str, str]]:
    header, *lines = text.replace("\r\n", "\n").split("\n")
    found = _HEADER.match(header)
    separator = "|" if found is None else found[1]
    names = header.split(separator)
    missing = sorted(NEEDED - set(names))
    if missing:
        raise SourceError(
            f"sacct's output lacks the fields {', '.join(missing)}; expected `sacct -P -o {','.join(FIELDS)}`"
        )
    if len(separator) < LEAST_SEPARATOR:
        raise SourceError(
            f"sacct's output is separated by {separator!r}, which a job's name may hold, so it may forge rows of other "
            'jobs; expected a separator that no user knows: --delimiter="#$RANDOM$RANDOM#"'
        )
    for number, line in enumerate(_joined(lines, separator), 2):
        values = line.split(separator)
        if len(values) != len(names):
            raise SourceError(f"line {number} of sacct's output has {len(values)} fields, expected {len(names)}")
        yield dict(zip(names, values, strict=True))


def _joined(lines: Iterable[str], separator: str) -> Iterator[str]:
    """Yield the lines; a line without any separator continues the free text of the line before."""
    held: str | None = None
    for line in lines:
        if separator in line:
            if held is not None:
                yield held
            held = line
        elif held is not None and line:
            held = f"{held} {line}"
    if held is not None:
        yield held


def _step(row: Mapping[str, str]) -> Step:
    use = counts_of(row["TRESUsageInTot"])
    return Step(
        start=_time(row["Start"]),
        end=_time(row["End"]),
        out_of_memory=row["State"].startswith("OUT_OF_MEMORY"),
        tasks=_count(row["NTasks"], "tasks"),
        nodes=_count(row["NNodes"], "nodes"),
        cpu_s=max(seconds_of(use.get("cpu", "")) or 0.0, seconds_of(row["TotalCPU"]) or 0.0),
        max_rss_mib=mib_of(row["MaxRSS"]),
        total_mib=mib_of(use.get("mem", "")),
    )


def _status(row: Mapping[str, str], steps: Sequence[Step]) -> Status | None:
    """Return how a job ended; a failed job ran out of memory if a step or the exit code of the job says so.

    A step's own end may be recorded after that of its job. A job with less memory than it asked for also ran out of
    memory if it was killed, since the kernel's kill is not always seen as such.
    """
    found = SLURM_STATES.get(row["State"].split(" ")[0])
    if found is not Status.FAILED and row["State"] != REQUEUED:
        return found
    ends = {_signal(row.get(name, "")) for name in ("ExitCode", "DerivedExitCode")}
    shrunk = not {"mem", "mem-per-cpu"}.isdisjoint(read_comment(row.get("AdminComment", "")).changes)
    killed = OUT_OF_MEMORY in ends or (shrunk and KILL in ends)
    return Status.OOM if killed or any(step.out_of_memory for step in steps) else found


def _signal(exit_code: str) -> int:
    """Return the signal in an exit code of Slurm's, such as 9 in `0:9` and in a shell's `137:0`; 0 if there is none."""
    code, _, signal = exit_code.partition(":")
    known = int(signal) if signal.isdecimal() else 0
    return known or (int(code) - SHELL_OF_SIGNAL if code.isdecimal() and int(code) > SHELL_OF_SIGNAL else 0)


def _folded(
    row: Mapping[str, str], status: Status, end: datetime, steps: Sequence[Step], *, cluster: str, interval_s: float
) -> EndedJob:
    submit = _time(row["Submit"]) or end
    start = _time(row["Start"])
    run_s = float(_count(row["ElapsedRaw"], "seconds", least=0))
    if row["State"] == REQUEUED and start is not None:
        run_s = (end - start).total_seconds()
    if status in NEVER_STARTED and not steps and start == end and run_s == 0.0:
        start = None
    requested = counts_of(row["ReqTRES"])
    instances = _count(requested.get("node", ""), "nodes")
    comment = read_comment(row.get("AdminComment", ""))
    given = amounts_in(requested, instances)
    before = comment.original(amount_of(requested.get("cpu", "")), mib_of(requested.get("mem", "")), instances)
    asked = _part(*before, requested, instances)
    amounts = {name: (getattr(given, name), getattr(asked, name)) for name in ("cpu_cores", "mem_gib")}
    shrunk_to = {name: had for name, (had, wanted) in amounts.items() if had != wanted}
    return EndedJob(
        cluster=row.get("Cluster") or cluster,
        job_id=row["JobIDRaw"],
        run_id=f"{row['JobIDRaw']}@{submit.timestamp():.0f}",
        number=row["JobID"],
        user=row["User"] or None,
        name=row["JobName"],
        partition=row["Partition"] or None,
        submit=submit,
        start=start,
        end=end,
        run_s=run_s,
        status=status,
        instances=instances,
        tasks=max((step.tasks for step in steps), default=1),
        gpu_type=gpu_type_in(requested),
        asked=asked,
        given=given,
        use=folded_use(
            steps, status=status, run_s=run_s, instances=instances, interval_s=interval_s, shrunk_to=shrunk_to
        ),
        time_limit_s=_minutes(row.get("TimelimitRaw", "")),
        answer_id=comment.answer_id,
    )


def amounts_in(requested: Mapping[str, str], instances: int) -> Amounts:
    """Return one instance's part of a list of resources, by name."""
    return _part(amount_of(requested.get("cpu", "")), mib_of(requested.get("mem", "")), requested, instances)


def _part(cpus: float | None, mib: float | None, requested: Mapping[str, str], instances: int) -> Amounts:
    """Return one instance's part of CPUs, memory and of the GPUs in a list of resources."""
    typed = [amount_of(value) or 0.0 for name, value in requested.items() if name.startswith("gres/gpu:")]
    gpus = amount_of(requested.get("gres/gpu", ""))
    return Amounts(
        cpu_cores=None if cpus is None else cpus / instances,
        mem_gib=None if mib is None else mib / MIB_PER_GIB / instances,
        gpus=(sum(typed) if gpus is None else gpus) / instances,
    )


def gpu_type_in(requested: Mapping[str, str]) -> str | None:
    """Return the type of GPU in a list of resources; None if it names none."""
    return next((name.partition(":")[2] for name in requested if name.startswith("gres/gpu:")), None)


def _time(text: str) -> datetime | None:
    if text in _NO_TIME:
        return None
    try:
        return datetime.fromisoformat(text).replace(tzinfo=UTC)
    except ValueError:
        raise SourceError(f"sacct's output has the time {text[:40]!r}, expected one as 2026-01-31T12:00:00") from None


def _count(text: str, of: str, *, least: int = 1) -> int:
    found = re.fullmatch(r"([0-9]{1,15}(?:\.[0-9]{1,6})?)([KM]?)", text or "0")  # Slurm may write 2048 nodes as 2K
    if found is None:
        raise SourceError(f"sacct's output has {text[:40]!r} {of}, expected a number")
    return max(round(float(found[1]) * {"": 1, "K": 1024, "M": 1024**2}[found[2]]), least)


def _minutes(text: str) -> float | None:
    return float(text) * 60.0 if text.isdecimal() else None
