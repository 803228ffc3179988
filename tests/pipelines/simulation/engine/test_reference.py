"""The simulator against a brute-force reference: second by second, everything re-sorted, nothing remembered."""

import math
from dataclasses import replace
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from scheduler_core.queueing import Discipline
from tests.pipelines.simulation.engine.simulations import (
    DISCIPLINES,
    gpu_machines,
    hosts_of,
    rows,
    run,
    simulated,
    workload,
)

MACHINES = [(16, 4), (8, 4), (12, 2)]
"""Cores and GPUs of three unequal machines."""


def rank(row: dict[str, Any], policy: str, aging: float, given: tuple[int, int]) -> float:
    predicted = math.inf if math.isnan(row["predicted"]) else row["predicted"]
    gpus = given[1] * row["instances"] / 1000
    keys = {
        "fifo": row["at"],
        "sjf": predicted,
        "qssf": math.inf if math.isinf(predicted) else predicted * gpus,
        "priority": -row["priority"],
    }
    return float(keys[policy] + aging * row["at"])


def fits(free: list[list[int]], each: tuple[int, int]) -> list[int]:
    """Return how often one instance fits each machine, counted by taking one after the other."""
    counts = []
    for room in free:
        count = 0
        while count < 9 and all(have >= (count + 1) * want for have, want in zip(room, each, strict=True)):
            count += 1
        counts.append(count)
    return counts


def place(free: list[list[int]], each: tuple[int, int], instances: int, how: str) -> list[int] | None:
    """Return the machine of every instance, placed one by one."""
    if sum(fits(free, each)) < instances:
        return None
    room = [list(machine) for machine in free]
    # Memory is 64 GiB free everywhere: it weighs the same on every machine.
    emptiness = [cores / 16000 + 1.0 + gpus / 4000 for cores, gpus in free]
    whole = [m for m, count in enumerate(fits(free, each)) if count >= instances]
    taken: list[int] = []
    for _ in range(instances):
        hosting = [m for m, count in enumerate(fits(room, each)) if count]
        if how == "consolidate" and whole:
            hosting = [min(whole, key=lambda m: (emptiness[m], m))]
        orders = {
            "first_fit": lambda m: m,
            "best_fit": lambda m: (emptiness[m], m),
            "consolidate": lambda m: (-min(fits(free, each)[m], instances), m),
            "spread": lambda m: (-(room[m][0] / 16000 + 1.0 + room[m][1] / 4000), m),
        }
        best = min(hosting, key=orders[how])
        taken.append(best)
        room[best] = [have - want for have, want in zip(room[best], each, strict=True)]
    return taken


def by_seconds(jobs: list[dict[str, Any]], rules: Discipline, until_s: int) -> tuple[list[Any], set[int]]:
    """Return the runs as (job, start, end, ending, hosts) and the jobs that never fit."""
    free = [[cores * 1000, gpus * 1000] for cores, gpus in MACHINES]
    empty = [list(room) for room in free]
    waiting: list[int] = []
    running: list[dict[str, Any]] = []
    runs: list[dict[str, Any]] = []
    full, too_large, head, passed = set(), set(), None, 0

    def asks(serial: int) -> tuple[int, int]:
        row = jobs[serial]
        full_request = (row["cores"], 0, row["gpus"])
        cores, _, gpus = full_request if serial in full else row.get("granted", full_request)
        return int(cores * 1000), int(gpus * 1000)

    for now in range(until_s + 1):
        for one in [one for one in running if one["end"] == now]:
            running.remove(one)
            for m in one["hosts"]:
                free[m] = [have + gives for have, gives in zip(free[m], one["each"], strict=True)]
            row = jobs[one["job"]]
            dies = row.get("dies", False) and one["job"] not in full
            one["ending"] = "killed" if dies else "failed" if row["fails"] else "completed"
            if dies:
                full.add(one["job"])
                waiting.append(one["job"])
        arrived = [serial for serial, row in enumerate(jobs) if row["at"] == now]
        for serial in arrived:
            wants = (int(jobs[serial]["cores"] * 1000), int(jobs[serial]["gpus"] * 1000))
            if sum(fits(empty, wants)) < jobs[serial]["instances"]:
                too_large.add(serial)
            else:
                waiting.append(serial)
        if not arrived and all(one["end"] != now for one in runs):
            continue
        waiting.sort(key=lambda s: (rank(jobs[s], str(rules.policy), rules.aging, asks(s)), s))
        blocked = None
        for serial in list(waiting):
            if blocked is not None and rules.overtakes is not None and passed >= rules.overtakes:
                break
            hosts = place(free, asks(serial), jobs[serial]["instances"], str(rules.placement))
            if hosts is None:
                if blocked is None:
                    blocked = serial
                    head, passed = serial, passed if head == serial else 0
                continue
            passed += blocked is not None
            waiting.remove(serial)
            for m in hosts:
                free[m] = [have - wants for have, wants in zip(free[m], asks(serial), strict=True)]
            row = jobs[serial]
            lasts = row["run"] if serial in full else row.get("granted_run", row["run"])
            one = {"job": serial, "start": now, "end": now + lasts, "ending": "running"}
            one |= {"hosts": hosts, "each": asks(serial)}
            running.append(one)
            runs.append(one)
        if blocked is None:
            head, passed = None, 0
    for one in runs:
        one["hosts"] = {m: one["hosts"].count(m) for m in one["hosts"]}
    return [(one["job"], one["start"], one["end"], one["ending"], one["hosts"]) for one in runs], too_large


@given(drawn=rows(most=14), rules=DISCIPLINES, horizon_s=st.integers(20, 400))
def test_the_simulator_agrees_with_brute_force(drawn: list[dict[str, Any]], rules: Discipline, horizon_s: int) -> None:
    sizes = gpu_machines(*(gpus for _, gpus in MACHINES))
    machines = tuple(replace(each, cpu_cores=cores) for each, (cores, _) in zip(sizes, MACHINES, strict=True))

    schedule = run(workload(*drawn), machines, rules, horizon_s=float(horizon_s))

    expected, too_large = by_seconds(drawn, rules, horizon_s)
    found = [(*one, hosts_of(schedule, at)) for at, one in enumerate(simulated(schedule))]
    assert found == expected
    assert [list(one[-1]) for one in found] == [list(one[-1]) for one in expected], "hosts in the order of first use"
    assert set(schedule.never_fits.nonzero()[0].tolist()) == too_large
