"""End to end on a real Slurm: history, training, service, agent and feedback, and what the next jobs ask for then."""

import re
import resource

import pytest

from modelserve.client import Client
from tests.pipelines.connect.slurm.closed_loop import (
    ASKED_CPUS,
    ASKED_MIB,
    GROUPS,
    ended,
    enforcing,
    held_shrunk,
    in_turn,
    mib,
    round_of_work,
    submit_work,
    taut,
    train,
    wait_for_end,
)
from tests.pipelines.connect.slurm.running import Cluster, until

pytestmark = pytest.mark.slow
FULL = (str(ASKED_CPUS), "4G")


def test_requests_fall_without_kills_and_kills_stop_their_group(slurm: Cluster) -> None:
    lake = slurm.run / "home" / "lake"
    train(slurm, lake)
    with enforcing(slurm, lake) as address:
        numbers = round_of_work(slurm, 20, seed=9)
        wait_for_end(slurm, numbers)
        found = [ended(slurm)[number] for number in numbers]

        assert [row["state"] for row in found] == ["COMPLETED"] * 60
        changed = [row for row in found if f"mem {ASKED_MIB}->" in row["comment"]]
        assert len(changed) >= 20  # on a busy machine some advice comes too late, and the request stands
        assert sum(mib(row["mem"]) for row in changed) <= 0.5 * ASKED_MIB * len(changed)
        assert sum(int(row["cpu"]) for row in changed) <= 0.5 * ASKED_CPUS * len(changed)
        updated = _check_an_updated_request_stands(slurm)
        killed = _check_kills_stop_their_group(slurm, address) if slurm.kills_for_memory else numbers[0]

    place = ("--lake", str(lake), "--format", "csv")
    query = "SELECT DISTINCT req_cpu_cores, req_mem_gib FROM jobs ORDER BY ALL"
    jobs = [("job", str(number), "--format", "csv") for number in (killed, updated)]
    said = in_turn(slurm, *jobs, ("slurm", "history", *place), ("sql", *place, query))
    of_killed, of_updated = said.split("resource,")[1:3]
    assert ("killed for memory" in of_killed) == slurm.kills_for_memory
    if slurm.kills_for_memory:
        assert max(map(int, re.findall(r"--mem=(\d+)M", of_killed))) >= ASKED_MIB
    assert "\nmem_gib,2.0,2.0," in of_updated
    assert "\ntaut," in said
    assert said.endswith("req_cpu_cores,req_mem_gib\n8.0,2.0\n8.0,4.0\n")  # never the shrunk request


def _check_an_updated_request_stands(slurm: Cluster) -> int:
    """Return the number of a shrunk job whose memory its user set to another amount while it waited."""
    number = held_shrunk(slurm, "medium", mib=GROUPS["medium"])
    slurm.command("scontrol", "update", f"JobId={number}", "MinMemoryNode=2048")
    slurm.command("scontrol", "release", str(number))
    wait_for_end(slurm, [number])
    return number


def _check_kills_stop_their_group(slurm: Cluster, address: str) -> int:
    """Return the number of a job that was killed for memory; jobs of its group that wait get their requests back."""
    killed = [held_shrunk(slurm, "small", mib=1600, seconds=30) for _ in range(3)]
    waiting, other = (held_shrunk(slurm, name, mib=GROUPS[name]) for name in ("small", "medium"))
    given = slurm.job(other)["TRES"]
    slurm.command("scontrol", "release", ",".join(map(str, killed)))
    until(lambda: {ended(slurm).get(each, {}).get("state") for each in killed} == {"OUT_OF_MEMORY"}, what="three kills")
    slurm.command("scontrol", "requeue", str(killed[0]))

    before_s = cpu_of_children_s()
    taut(slurm, "slurm", "feedback", "--url", address, "--state", str(slurm.run / "feedback.state"), "--once")
    took_s = cpu_of_children_s() - before_s
    with Client(address) as client:
        assert [(each.group, each.user) for each in client.modes().brakes] == [("root/small", None)]
    assert slurm.job(other)["TRES"] == given
    after = submit_work(slurm, "small", mib=GROUPS["small"])
    slurm.command("scontrol", "update", f"JobId={killed[0]}", "StartTime=now")  # else it waits for two minutes
    slurm.command("scontrol", "release", f"{waiting},{other}")
    wait_for_end(slurm, [killed[0], waiting, other, after])

    rows = ended(slurm)
    assert [rows[each]["state"] for each in (killed[0], waiting, other, after)] == ["COMPLETED"] * 4
    assert [(rows[each]["cpu"], rows[each]["mem"]) for each in (killed[0], waiting, after)] == [FULL] * 3
    assert took_s < 10.0  # of the processor: time that passes is mostly that of other processes here
    return killed[1]


def cpu_of_children_s() -> float:
    spent = resource.getrusage(resource.RUSAGE_CHILDREN)
    return spent.ru_utime + spent.ru_stime
