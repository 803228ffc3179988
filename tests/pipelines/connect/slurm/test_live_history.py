"""History read from a real sacct: arrays, parts, two tasks of a step, a requeued, a cancelled and a killed job."""

import csv
import sys
from collections.abc import Mapping
from datetime import UTC, datetime

import pytest

from pipelines.connect.slurm.accounting import FIELDS
from tests.pipelines.connect.slurm.agents import fake_agent, saying
from tests.pipelines.connect.slurm.closed_loop import WORK, ended, taut, wait_for_end
from tests.pipelines.connect.slurm.running import Cluster, until
from tests.pipelines.connect.slurm.test_accounting import JOB

pytestmark = pytest.mark.slow

HOLD = f'{sys.executable} -c "{WORK.format(size=100 * 2**20, seconds=3)}"'


FORGED = "forger\n" + "\x1f".join(
    {**JOB, "JobIDRaw": "99999", "User": "victim", "End": datetime.now(UTC).isoformat()[:19]}[name] for name in FIELDS
)
"""A job's name that holds a row of another user's job, with the separator that taut had used."""


def test_what_really_ran_is_in_the_records_once(slurm: Cluster) -> None:
    with fake_agent(slurm.socket, saying(b"end=1\n")):
        slurm.reload()
        array = slurm.submit("-J", "array", "--array=0-1", "--mem=300M", wrap=f"exec {HOLD}")
        two = slurm.submit("-J", "two", "-n2", "-N1", "--mem=600M", wrap=f"srun -n2 {HOLD}")
        again = slurm.submit("-J", "again", "--requeue", "--mem=300M", wrap="sleep 60")
        never = slurm.submit("-J", "never", "-H", "--mem=300M")
        killed = slurm.submit("-J", "killed", "--mem=50M", wrap=f"exec {HOLD}")
        forger = slurm.submit("-J", FORGED, "--mem=300M")
    until(lambda: slurm.job(again)["JobState"] == "RUNNING", what="a running job")
    slurm.command("scontrol", "requeue", str(again))
    until(lambda: slurm.job(again)["JobState"] == "PENDING", what="a requeued job")
    slurm.command("scancel", str(again), str(never))
    wait_for_end(slurm, [array, two, killed, forger])
    until(lambda: sum(key in ended(slurm) for key in (array, array + 1)) == 2, what="the array in accounting")

    lake, records = str(slurm.run / "home" / "live"), slurm.run / "home" / "records"
    taut(slurm, "slurm", "history", "--lake", lake, "--records", str(records), "--interval-s", "1")
    first = (records / "taut.csv").read_bytes()
    taut(slurm, "slurm", "history", "--lake", lake, "--records", str(records), "--interval-s", "1")

    assert (records / "taut.csv").read_bytes() == first
    with (records / "taut.csv").open() as stream:
        rows = list(csv.DictReader(stream))
    check_rows(rows, slurm, two=two)


def check_rows(rows: list[dict[str, str]], slurm: Cluster, *, two: int) -> None:
    """Check the rows of the jobs submitted here, among those of other tests."""
    by_name: dict[str, list[Mapping[str, str]]] = {}
    for row in rows:
        by_name.setdefault(row["group"].partition("/")[2], []).append(row)
    assert [row["status"] for row in by_name["array"]] == ["completed", "completed"]
    assert all(float(row["mem_max_gib"]) > 100 / 1024 for row in by_name["array"])
    assert [row["user"] for row in rows if "forger" in row["name"]] == ["root"]
    assert not any(row["job_id"] == "99999" or row["user"] == "victim" for row in rows)
    [pair] = by_name["two x2"]
    assert pair["job_id"] == str(two)
    assert float(pair["mem_max_gib"]) > 200 / 1024  # the sum of two tasks, not the larger
    assert {row["status"] for row in by_name["again"]} <= {"cancelled"}
    assert [(row["status"], row["mem_max_gib"]) for row in by_name.get("never", [])] in ([], [("cancelled", "")])
    [killed] = by_name["killed"]
    if slurm.kills_for_memory:
        assert (killed["status"], killed["mem_max_gib"], killed["used_cpu_cores"]) == ("oom", "", "")
