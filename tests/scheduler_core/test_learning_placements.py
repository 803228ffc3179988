"""Placements that remember: made anew for every scheduler, and told who arrives."""

import pytest

from scheduler_core.cluster import Allocation, Demand, Room
from scheduler_core.placement import PLACEMENTS, PlacementKind, first_fit, placement_of, sharing_of
from scheduler_core.queueing import Discipline
from scheduler_core.rounds import Scheduler
from tests.pipelines.simulation.engine.simulations import gpu_machines, outages, run, workload
from tests.scheduler_core.cases import job, request


class Learning:
    """First fit that writes down what arrives."""

    sharing = "devices"

    def __init__(self, seed: int) -> None:
        self.seed = seed
        self.heard: list[tuple[int, int]] = []

    def __call__(self, demand: Demand, room: Room) -> Allocation | None:
        return first_fit(demand, room)

    def arrived(self, demand: Demand) -> None:
        self.heard.append((demand.units[2], demand.instances))


@pytest.fixture
def made(monkeypatch: pytest.MonkeyPatch) -> list[Learning]:
    """Register a learning placement; return those that were made of it."""
    ever: list[Learning] = []

    def make(seed: int) -> Learning:
        ever.append(Learning(seed))
        return ever[-1]

    monkeypatch.setitem(PLACEMENTS, "learning", PlacementKind(make=make, sharing="devices"))
    return ever


def test_a_named_placement_is_fresh_for_every_run_and_has_its_seed(made: list[Learning]) -> None:
    rules = Discipline(placement="learning", seed=7)

    one, other = (run(workload({"gpus": 0.5}), gpu_machines(1), rules) for _ in range(2))

    assert [(each.seed, each.heard) for each in made] == [(7, [(500, 1)])] * 2
    assert one.host_devices is not None, "as the placement declares"
    assert other.host_devices is not None


def test_every_job_is_heard_once_when_it_first_joins(made: list[Learning]) -> None:
    jobs = workload(
        {"gpus": 1.5, "instances": 2, "granted": (0.0, 0.0, 0.5), "granted_run": 5.0, "dies": True},
        {"gpus": 0.3, "run": 400.0},
        {"gpus": 9.0},
        {"at": 20.0, "gpus": 1.5, "run": 1.0},
    )

    found = run(
        jobs,
        gpu_machines(4),
        Discipline(policy="srtf", placement="learning", quantum_s=2.0),
        outages=outages((0, 10.0, 12.0)),
    )

    assert len(found.job) > len(jobs), "some come back: killed, stopped or interrupted"
    # What joins is what it is granted; what never fits does not join; whole GPUs beyond one.
    assert made[0].heard == [(500, 2), (300, 1), (2000, 1)]


def test_jobs_handed_in_one_by_one_are_heard_as_they_are_scaled(made: list[Learning]) -> None:
    scheduler = Scheduler(gpu_machines(2), Discipline(placement="learning"))
    scheduler.submit(job("a", request(1.0, 1.0, 1.2)), 0.0)
    scheduler.submit(job("b", request(1.0, 1.0, 3.0)), 0.0)

    result = scheduler.round(0.0)

    assert [run.allocation.devices for run in result.started] == [((0, 0, 1000), (0, 1, 1000))]
    assert len(result.never_fits) == 1
    assert made[0].heard == [(2000, 1)]


def test_one_given_by_value_is_itself_and_declares_for_itself() -> None:
    own = Learning(0)

    assert placement_of(own) is own
    assert (sharing_of(own), sharing_of(first_fit), sharing_of("best_fit", "devices")) == (
        "devices",
        "pooled",
        "devices",
    )
