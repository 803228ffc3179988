"""Run Slurm's programs `sacct`, `scontrol`, `squeue` and `sstat`; times are in UTC."""

import os
import re
import secrets
import shutil
import subprocess
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime, timedelta
from functools import lru_cache
from typing import Final

from pipelines.connect.slurm.accounting import FIELDS, EndedJob, read_jobs
from pipelines.connect.slurm.queue import JOB_FIELDS, STEP_FIELDS
from pipelines.errors import SourceError

INTERVAL_S: Final = 30.0
"""Slurm's default of JobAcctGatherFrequency."""
ENDED_STATES: Final = "BF,CA,CD,DL,F,NF,OOM,PR,RQ,TO"
LIMIT_S: Final = 600.0
PART: Final = timedelta(days=1)
"""Longest period of one query; a longer query would occupy slurmdbd."""
AT_ONCE: Final = 200
"""Number of running jobs whose steps are read in one query."""


def jobs_between(since: datetime, until: datetime, *, interval_s: float) -> Iterator[EndedJob]:
    """Yield the jobs that ended in a period, day by day; a job that ended at midnight may come twice."""
    while since < until:
        end = min(since + PART, until)
        window = ("-a", "-s", ENDED_STATES, "-S", _written(since), "-E", _written(end))
        yield from read_jobs(_sacct(*window), cluster="main", interval_s=interval_s)
        since = end


def jobs_numbered(number: str, *, interval_s: float) -> list[EndedJob]:
    """Return the ended runs of one job, or of all tasks of an array, the oldest first."""
    return list(read_jobs(_sacct("-a", "-j", number), cluster="main", interval_s=interval_s))


def sampling_interval_s() -> float:
    """Return the seconds between two samples of use, from slurmctld; Slurm's default if it does not answer."""
    try:
        text = _run("scontrol", "show", "config", limit_s=20.0)
    except SourceError:
        return INTERVAL_S
    found = re.search(r"JobAcctGatherFrequency\s*=\s*(?:.*?task=)?(\d+)", text)
    return float(found[1]) if found else INTERVAL_S


def fresh_separator() -> str:
    """Return a random separator of fields: a job name with a known separator and line ends could forge rows."""
    return f"\x1f{secrets.randbits(96)}\x1f"


def queue_text(separator: str) -> str:
    """Return the running and waiting jobs, the next to start first, for `queue.read_queue`."""
    fields = ",".join(f"{name}:{separator}" for name in JOB_FIELDS)
    return _run("squeue", "-h", "-a", "-t", "R,PD", "-S", "-p,i", "-O", fields, limit_s=LIMIT_S)


def queue_json() -> str:
    """Return the running and waiting jobs with their admin comments, for `feedback.read_shrunk`."""
    return _run("squeue", "-a", "--json", limit_s=LIMIT_S)


def update_job(number: str, words: Sequence[str]) -> None:
    """Change the request of a waiting job, or of the named tasks of an array."""
    _run("scontrol", "update", f"JobId={number}", *words, limit_s=20.0)


def nodes_text() -> str:
    """Return all nodes, for `queue.read_nodes`."""
    return _run("scontrol", "-o", "show", "nodes", limit_s=LIMIT_S)


def steps_text(numbers: Sequence[str]) -> str:
    """Return the running steps of jobs, for `queue.read_steps`; a job that has just ended is left out."""
    parts = [numbers[at : at + AT_ONCE] for at in range(0, len(numbers), AT_ONCE)]
    words = ("-a", "-n", "-P", "-o", ",".join(STEP_FIELDS))
    return "".join(_run("sstat", *words, "-j", ",".join(part), limit_s=LIMIT_S) for part in parts)


@lru_cache(maxsize=4096)
def hosts_in(text: str) -> tuple[str, ...]:
    """Return the nodes in one of Slurm's node lists, such as n[1-2]."""
    if "[" not in text:
        return tuple(text.split(",")) if text else ()
    return tuple(_run("scontrol", "show", "hostnames", text, limit_s=LIMIT_S).split())


def states_of(numbers: Sequence[str]) -> dict[str, str]:
    """Return the state of each job that waits, runs or is suspended (PENDING, RUNNING, SUSPENDED), by its number."""
    wanted = set(numbers)
    # Not with -j, which fails once slurmctld has forgotten a job.
    lines = _run("squeue", "-h", "-a", "-r", "-t", "PD,R,S", "-o", "%i %T", limit_s=20.0).splitlines()
    return {number: state for number, state in (line.split() for line in lines) if number in wanted}


def _sacct(*words: str) -> str:
    form = ("-P", f"--delimiter={fresh_separator()}", "-o", ",".join(FIELDS))
    return _run("sacct", "--duplicates", *form, *words, limit_s=LIMIT_S)


def _run(name: str, *words: str, limit_s: float) -> str:
    program = shutil.which(name)
    if program is None:
        raise SourceError(f"{name} is not installed here; run this where Slurm's commands are, or give --from FILE")
    environment = {**os.environ, "TZ": "UTC", "SLURM_TIME_FORMAT": "standard"}
    try:
        done = subprocess.run(  # noqa: S603  # a program of Slurm's, without a shell
            [program, *words], capture_output=True, env=environment, timeout=limit_s, check=False
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise SourceError(f"{name}: {type(error).__name__}; expected an answer within {limit_s:g} s") from error
    if done.returncode != 0:
        said = done.stderr.decode(errors="replace").strip().split("\n")[-1]
        raise SourceError(f"{name} failed: {said[:300]}")
    return done.stdout.decode(errors="replace")


def _written(moment: datetime) -> str:
    return moment.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%S")
