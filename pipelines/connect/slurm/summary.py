"""The request, allocation and use of one ended job, and the request for its next submission.

Figures come from accounting alone, or also from the forecast of a service.
"""

import math
from collections.abc import Mapping
from typing import Final

from features.vocabulary import Status
from modelserve.client import Client
from modelserve.contract.jobs import Recommended
from modelserve.errors import ClientError
from pipelines.connect.slurm.accounting import EndedJob
from pipelines.connect.slurm.commands import jobs_numbered, sampling_interval_s
from pipelines.connect.slurm.submission import MIB_PER_GIB
from pipelines.errors import SourceError

__all__ = ["summarise"]

MARGIN: Final = 1.2
"""Factor on the largest measured use, if the service gives no advice."""
KILLED_FACTOR: Final = 1.5
"""Factor on the memory that a killed job was given, since a kill does not show how much the job needed."""

LATE_FACTOR: Final = 2.0
"""Factor on the time limit of a job that reached it, since its run does not show how long the job needs."""

Row = dict[str, object]


def summarise(number: str, *, client: Client | None, trace: str) -> list[Row]:
    """Return rows about the newest ended run of a job, with the forecasts of `client` if its service answers."""
    jobs = jobs_numbered(number, interval_s=sampling_interval_s())
    if not jobs:
        raise SourceError(
            f"found no ended job {number} in accounting; a running one is there some seconds after its end"
        )
    job = max(jobs, key=lambda each: each.end)
    advice, why = None, "one run; --url asks the service"
    if client is not None:
        try:
            [advice] = client.recommendations([_question(job)], trace=trace)
            why = f"{advice.evidence.measured_runs} measured runs"
        except ClientError as error:
            why = f"one run; {str(error)[:120]}"
    return rows_about(job, advice, why)


def rows_about(job: EndedJob, advice: Recommended | None, why: str) -> list[Row]:
    """Return a row for each resource and time of a job, and the options for its next submission as the last row."""
    memory, why_memory = next_mem_gib(job, advice)
    cpus = _next_cpus(job, advice)
    used = job.use
    waited = None if job.start is None else (job.start - job.submit).total_seconds()
    p50, p90 = (None, None) if advice is None else (advice.run_time_s.p50, advice.run_time_s.p90)
    forecast = "" if p50 is None else f"forecast: {p50:.0f} s in half, {p90 or math.nan:.0f} s in nine of ten"
    options = " ".join(options_for(job, cpus, memory))
    return [
        _row("cpu_cores", job.asked.cpu_cores, job.given.cpu_cores, used.cpu_cores, cpus, why),
        _row("mem_gib", job.asked.mem_gib, job.given.mem_gib, used.mem_most_gib, memory, why_memory or why),
        _row("gpus", job.asked.gpus, job.given.gpus, None, job.asked.gpus, "Slurm records no mean use of GPUs"),
        _row("run_s", job.time_limit_s, None, job.run_s, None, forecast),
        _row("wait_s", None, None, waited, None, f"state {job.status}, job {job.number} of {job.user}"),
        {**_row("sbatch", None, None, None, None, why_memory or why), "next": options},
    ]


def next_mem_gib(job: EndedJob, advice: Recommended | None) -> tuple[float | None, str]:
    """Return the memory of the next submission for each machine, and a reason if the job was killed for memory.

    It is at least the largest measured use. After a kill for memory it is also at least the request, and at least
    `KILLED_FACTOR` times what the job was given.
    """
    asked = job.asked.mem_gib
    advised = None if advice is None else advice.raise_to.mem_gib or advice.target.mem_gib
    if job.status is Status.OOM and job.given.mem_gib is not None:
        more = max(job.given.mem_gib * KILLED_FACTOR, advised or 0.0, asked or 0.0)
        return more, f"killed for memory with {job.given.mem_gib:.3g} GiB"
    most = job.use.mem_most_gib
    if advised is not None:
        return max(advised, most or 0.0), ""
    return (asked, "the use is unknown") if most is None else (max(most * MARGIN, 1 / MIB_PER_GIB), "")


def options_for(job: EndedJob, cpus: float | None, mem_gib: float | None) -> list[str]:
    """Return the options of sbatch for these amounts; without CPUs if the job has several tasks, which share them."""
    options = []
    if cpus is not None and job.tasks == 1 and job.instances == 1:
        options.append(f"--cpus-per-task={math.ceil(cpus)}")
    if mem_gib is not None:
        options.append(f"--mem={math.ceil(mem_gib * MIB_PER_GIB)}M")
    if job.status is Status.TIMEOUT and job.time_limit_s is not None:
        options.append(f"--time={math.ceil(job.time_limit_s * LATE_FACTOR / 60.0)}")
    return options


def _next_cpus(job: EndedJob, advice: Recommended | None) -> float | None:
    if advice is not None and advice.target.cpu_cores is not None:
        return float(math.ceil(advice.target.cpu_cores))
    used, asked = job.use.taught_cpu_cores, job.asked.cpu_cores
    if used is None or asked is None:
        return asked
    return float(min(max(math.ceil(used * MARGIN), 1), math.ceil(asked)))


def _row(name: str, asked: float | None, given: float | None, used: float | None, then: float | None, why: str) -> Row:
    return {
        "resource": name,
        "asked": _rounded(asked),
        "given": _rounded(given),
        "used": _rounded(used),
        "next": _rounded(then),
        "why": why,
    }


def _rounded(value: float | None) -> float | None:
    return None if value is None else float(f"{value:.4g}")


def _question(job: EndedJob) -> Mapping[str, object]:
    return {
        "job_id": job.run_id,
        "instances": job.instances,
        "request": {name: value for name, value in job.asked.model_dump().items() if value is not None},
        **{name: text for name, text in job.names.items() if text},
    }
