"""Tiny worlds of devices against a naive reference: second by second, instance by instance, lists of numbers."""

import math
from collections.abc import Callable
from copy import deepcopy
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from pipelines.simulation.engine.schedule import Schedule
from scheduler_core.cluster import Machine
from scheduler_core.queueing import Discipline
from tests.pipelines.simulation.engine.simulations import run, simulated, workload

Free = list[dict[str, Any]]
"""By machine: free cores, and free hundredths of each GPU."""

SHAPES = [(8, 2), (4, 1), (6, 3)]
"""Cores and GPUs of three unequal machines."""

JOBS = st.lists(
    st.fixed_dictionaries(
        {
            "at": st.integers(0, 30).map(float),
            "gpus": st.sampled_from([0.0, 0.3, 0.4, 0.5, 0.7, 1.0, 1.5, 2.0, 3.0]),
            "cores": st.integers(0, 4),
            "instances": st.integers(1, 4),
            "run": st.integers(1, 25).map(float),
        }
    ),
    min_size=1,
    max_size=14,
).map(lambda jobs: sorted(jobs, key=lambda job: job["at"]))


def empty() -> Free:
    return [{"cores": cores, "gpus": [100] * gpus} for cores, gpus in SHAPES]


def put(machine: dict[str, Any], job: dict[str, Any]) -> list[int] | None:
    """Take one instance from a machine; return what it took of each device, or None, nothing taken."""
    wants = round(100 * job["gpus"])
    took = [0] * len(machine["gpus"])
    if wants > 100:
        idle = [at for at, free in enumerate(machine["gpus"]) if free == 100][: math.ceil(wants / 100)]
        enough = len(idle) == math.ceil(wants / 100)
        for at in idle:
            took[at] = 100
    elif wants:
        fitting = sorted((free, at) for at, free in enumerate(machine["gpus"]) if free >= wants)
        enough = bool(fitting)
        for _, at in fitting[:1]:
            took[at] = wants
    else:
        enough = True
    if not enough or machine["cores"] < job["cores"]:
        return None
    machine["cores"] -= job["cores"]
    machine["gpus"] = [free - one for free, one in zip(machine["gpus"], took, strict=True)]
    return took


def holds(machine: dict[str, Any], job: dict[str, Any]) -> int:
    """Return how many instances a machine takes, by taking them."""
    tried, count = deepcopy(machine), 0
    while count < job["instances"] and put(tried, job) is not None:
        count += 1
    return count


def emptiness(machine: dict[str, Any]) -> float:
    """Weigh the room over the largest machine's; memory is the same everywhere."""
    return float(machine["cores"] / 8 + 1.0 + sum(machine["gpus"]) / 300)


def place(free: Free, job: dict[str, Any], how: str) -> list[tuple[int, list[int]]] | None:
    """Return machine and devices of every instance, placed one by one, and take them; None takes nothing."""
    before = deepcopy(free)
    counts = [holds(machine, job) for machine in before]
    if sum(counts) < job["instances"]:
        return None
    everything = [at for at, count in enumerate(counts) if count == job["instances"]]
    orders: dict[str, Callable[[int], Any]] = {
        "first_fit": lambda at: at,
        "best_fit": lambda at: (emptiness(before[at]), at),
        "consolidate": lambda at: (-counts[at], emptiness(before[at]) if everything else 0.0, at),
        "spread": lambda at: (-emptiness(free[at]), at),
    }
    taken = []
    for _ in range(job["instances"]):
        at = min((at for at, machine in enumerate(free) if holds(machine, job)), key=orders[how])
        took = put(free[at], job)
        assert took is not None
        taken.append((at, took))
    return taken


def by_seconds(jobs: list[dict[str, Any]], rules: Discipline) -> tuple[list[Any], set[int]]:
    """Return the runs as (job, start, end, {machine: devices}) and the jobs that never fit."""
    free, waiting, running, runs = empty(), [], [], []
    too_large = {at for at, job in enumerate(jobs) if place(empty(), job, "first_fit") is None}
    for now in range(31 + sum(int(job["run"]) for job in jobs)):
        for ended in [one for one in running if one[2] == now]:
            running.remove(ended)
            for at, took in ended[3]:
                free[at]["cores"] += jobs[ended[0]]["cores"]
                free[at]["gpus"] = [has + one for has, one in zip(free[at]["gpus"], took, strict=True)]
        waiting += [at for at, job in enumerate(jobs) if job["at"] == now and at not in too_large]
        waiting.sort(key=lambda at: (jobs[at]["run"] if rules.policy == "sjf" else jobs[at]["at"], at))
        for serial in list(waiting):
            taken = place(free, jobs[serial], str(rules.placement))
            if taken is not None:
                waiting.remove(serial)
                running.append((serial, float(now), now + jobs[serial]["run"], taken))
                runs.append(running[-1])
            elif rules.overtakes == 0:
                break
    assert not waiting
    assert free == empty(), "all comes back"
    return [(serial, start, end, by_machine(taken)) for serial, start, end, taken in runs], too_large


def by_machine(taken: list[tuple[int, list[int]]]) -> dict[int, list[int]]:
    """Return hundredths by device and machine, machines in the order of first use."""
    summed: dict[int, list[int]] = {}
    for at, took in taken:
        summed[at] = [have + one for have, one in zip(summed.get(at, [0] * len(took)), took, strict=True)]
    return summed


def hosts(schedule: Schedule, at: int) -> dict[int, list[int]]:
    assert schedule.host_devices is not None
    span = range(int(schedule.host_offsets[at]), int(schedule.host_offsets[at + 1]))
    return {
        int(schedule.hosts[host]): [
            milli // 10 for milli in schedule.host_devices[host].tolist()[: SHAPES[schedule.hosts[host]][1]]
        ]
        for host in span
    }


@given(
    jobs=JOBS,
    policy=st.sampled_from(["fifo", "sjf"]),
    placement=st.sampled_from(["first_fit", "best_fit", "consolidate", "spread"]),
    overtakes=st.sampled_from([None, 0]),
)
def test_devices_agree_with_brute_force(
    jobs: list[dict[str, Any]], policy: str, placement: str, overtakes: int | None
) -> None:
    machines = [Machine(name=str(at), cpu_cores=c, mem_gib=1, gpus=g) for at, (c, g) in enumerate(SHAPES)]
    rules = Discipline(policy=policy, placement=placement, overtakes=overtakes, sharing="devices")

    schedule = run(workload(*jobs), machines, rules)

    expected, too_large = by_seconds(jobs, rules)
    found = [(*one[:3], hosts(schedule, at)) for at, one in enumerate(simulated(schedule))]
    assert found == expected
    assert [list(one[-1]) for one in found] == [list(one[-1]) for one in expected], "hosts in the order of first use"
    assert set(schedule.never_fits.nonzero()[0].tolist()) == too_large
