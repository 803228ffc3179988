"""End to end on a real Slurm: history, training, service, agent and feedback, and what the next jobs ask for then."""

import resource

import pytest

from tests.pipelines.connect.slurm.closed_loop import (
    ASKED_CPUS,
    ASKED_MIB,
    GROUPS,
    ended,
    enforcing,
    in_turn,
    mib,
    round_of_work,
    submit_work,
    taut,
    train,
    wait_for_end,
)
from tests.pipelines.connect.slurm.running import Cluster

pytestmark = pytest.mark.slow


def test_requests_fall_without_kills_and_a_kill_raises_the_next(slurm: Cluster) -> None:
    lake = slurm.run / "home" / "lake"
    train(slurm, lake)
    with enforcing(slurm, lake) as address:
        numbers = round_of_work(slurm, 20, seed=9)
        wait_for_end(slurm, numbers)
        found = [ended(slurm)[number] for number in numbers]

        assert [row["state"] for row in found] == ["COMPLETED"] * 60
        assert sum(mib(row["mem"]) for row in found) <= 0.5 * ASKED_MIB * 60
        assert sum(int(row["cpu"]) for row in found) <= 0.5 * ASKED_CPUS * 60
        changed = [row for row in found if f"mem {ASKED_MIB}->" in row["comment"]]
        assert len(changed) >= 30  # on a busy machine some advice comes too late, and the request stands
        killed = _check_a_kill_raises_the_next(slurm, address) if slurm.kills_for_memory else numbers[0]

    place = ("--lake", str(lake), "--format", "csv")
    query = "SELECT DISTINCT req_cpu_cores, req_mem_gib FROM jobs"
    said = in_turn(slurm, ("job", str(killed), "--format", "csv"), ("slurm", "history", *place), ("sql", *place, query))
    assert ("killed for memory" in said) == slurm.kills_for_memory
    assert "\ntaut," in said
    assert said.endswith("req_cpu_cores,req_mem_gib\n8.0,4.0\n")  # never the shrunk request


def _check_a_kill_raises_the_next(slurm: Cluster, address: str) -> int:
    """Return the number of a job that was killed for memory, which raised the next one's request."""
    state = str(slurm.run / "feedback.state")
    before = submit_work(slurm, "small", mib=GROUPS["small"])
    killed = submit_work(slurm, "small", mib=800, seconds=30)
    wait_for_end(slurm, [before, killed])
    before_s = cpu_of_children_s()
    taut(slurm, "slurm", "feedback", "--url", address, "--state", state, "--once")
    took_s = cpu_of_children_s() - before_s
    after = submit_work(slurm, "small", mib=GROUPS["small"])
    wait_for_end(slurm, [after])
    rows = ended(slurm)
    assert rows[killed]["state"] == "OUT_OF_MEMORY"
    assert mib(rows[after]["mem"]) > mib(rows[before]["mem"])
    assert took_s < 10.0  # of the processor: time that passes is mostly that of other processes here
    return killed


def cpu_of_children_s() -> float:
    spent = resource.getrusage(resource.RUSAGE_CHILDREN)
    return spent.ru_utime + spent.ru_stime
