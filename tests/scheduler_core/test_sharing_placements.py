"""Device placements against what one reads in plain Python, decision by decision, while gangs come and go."""

from collections import Counter

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from scheduler_core import sharing_placements
from scheduler_core.cluster import Allocation, Cluster, Demand, Machine
from scheduler_core.errors import BadInput
from scheduler_core.fragmentation import cluster_fragmentation, free_nodes
from scheduler_core.placement import PLACEMENTS, placement_of
from scheduler_core.sharing_placements import DevicePlacement
from scheduler_core.target import SlidingTarget, target_of
from tests.examples import examples
from tests.pipelines.simulation.engine.sharing_references import (
    BASELINES,
    CLUSTERS,
    DEMANDS,
    FGDS,
    ask_of,
    boxes_of,
    decide,
    taken,
)
from tests.scheduler_core.cases import machines

POLICIES = [*BASELINES, *FGDS, "random"]
SCORED = [*BASELINES, *FGDS]

EVENTS = st.lists(st.tuples(DEMANDS, st.integers(0, 99)), min_size=1, max_size=25)
"""Demands, and for each whether one that runs ends first (below 30), and which."""


def one(gpu: int, instances: int = 1, cpu: int = 1000, gpu_type: str | None = None) -> Demand:
    return Demand(units=(cpu, 0, gpu), instances=instances, gpu_type=gpu_type)


def where(allocation: Allocation | None) -> tuple[int, list[int]] | None:
    if allocation is None:
        return None
    return allocation.counts[0][0], [device for _, device, _ in allocation.devices]


def ends(chance: int, running: list[Allocation]) -> Allocation | None:
    return running.pop(chance % len(running)) if chance < 30 and running else None


@pytest.mark.parametrize("policy", SCORED)
@settings(max_examples=examples(60))
@given(CLUSTERS, EVENTS, st.lists(DEMANDS, max_size=6))
def test_decides_as_one_reads_it(
    policy: str, drawn: list[Machine], events: list[tuple[Demand, int]], wanted: list[Demand]
) -> None:
    cluster, target = Cluster(drawn, sharing="devices"), target_of(wanted)
    place, boxes, running = DevicePlacement(policy, target), boxes_of(drawn), []
    for demand, chance in events:
        ended = ends(chance, running)
        if ended is not None:
            cluster.release(ended)
            give_back(boxes, ended)
        expected = decide(policy, boxes, ask_of(demand), target)
        allocation = place(demand, cluster.room())
        assert where(allocation) == expected
        if allocation is not None and expected is not None:
            cluster.allocate(allocation)
            running.append(allocation)
            boxes[expected[0]] = taken(boxes[expected[0]], ask_of(demand), expected[1])


def give_back(boxes: list[object], ended: Allocation) -> None:
    ask, machine = ask_of(ended.demand), ended.counts[0][0]
    box = boxes[machine].copy()
    box.cpu, box.mem = box.cpu + ask.cpu, box.mem + ask.mem
    for _, device, milli in ended.devices:
        box.gpus[device] += milli
    if ask.count:
        box.sizes[ask.size] -= 1
    boxes[machine] = box


@settings(max_examples=examples(60))
@given(CLUSTERS, EVENTS, st.lists(DEMANDS, min_size=1, max_size=6))
def test_kept_fragmentation_is_that_computed_anew_after_every_event(
    drawn: list[Machine], events: list[tuple[Demand, int]], wanted: list[Demand]
) -> None:
    cluster, target = Cluster(drawn, sharing="devices"), target_of(wanted)
    place, running = DevicePlacement("fgd", target), []
    for demand, chance in events:
        ended = ends(chance, running)
        if ended is not None:
            cluster.release(ended)
            assert place.fragmentation(cluster.room()) == cluster_fragmentation(free_nodes(cluster.room()), target)
        allocation = place(demand, cluster.room())
        if allocation is not None:
            cluster.allocate(allocation)
            running.append(allocation)
        assert place.fragmentation(cluster.room()) == cluster_fragmentation(free_nodes(cluster.room()), target)


@pytest.mark.parametrize("policy", POLICIES)
@settings(max_examples=examples(30))
@given(CLUSTERS, st.lists(DEMANDS, min_size=1, max_size=8), st.integers(2, 5))
def test_a_gang_is_its_instances_one_after_the_other_or_nothing(
    policy: str, drawn: list[Machine], demands: list[Demand], instances: int
) -> None:
    cluster, alone = Cluster(drawn, sharing="devices"), Cluster(drawn, sharing="devices")
    target = target_of(demands)
    place, singly = DevicePlacement(policy, target), DevicePlacement(policy, target)
    for demand in demands:
        gang = Demand(units=demand.units, instances=instances, gpu_type=demand.gpu_type)
        allocation = place(gang, cluster.room())
        singles = []
        while len(singles) < instances and (found := singly(demand, alone.room())) is not None:
            alone.allocate(found)
            singles.append(found)
        if policy != "random":
            assert (allocation is None) == (len(singles) < instances)
        for found in singles:
            alone.release(found)
        if allocation is None:
            continue
        cluster.allocate(allocation)
        assert sum(count for _, count in allocation.counts) == instances
        if policy != "random":
            assert allocation.devices == tuple(entry for found in singles for entry in found.devices)
            assert dict(allocation.counts) == Counter(machine for found in singles for machine, _ in found.counts)
        cluster.release(allocation)


@pytest.mark.parametrize("policy", POLICIES)
def test_away_machines_and_other_types_are_left_out(policy: str) -> None:
    typed = [Machine(name=kind, cpu_cores=8, mem_gib=8, gpus=2, gpu_type=kind) for kind in ("T4", "V100", "A10")]
    cluster, place = Cluster(typed, sharing="devices"), DevicePlacement(policy)
    assert place(one(500, gpu_type="A10|V100"), cluster.room()).counts[0][0] in (1, 2)
    cluster.down(1)
    assert place(one(500, gpu_type="A10|V100"), cluster.room()).counts == ((2, 1),)
    assert place(one(0, cpu=0, gpu_type="V100"), cluster.room()) is None
    assert place(one(500, gpu_type="P100"), cluster.room()) is None


def test_fragmentation_is_what_fgd_avoids_and_packing_does_not() -> None:
    """With 0.3 and 0.5 GPU free and nine of ten who ask for 0.3, an ask for 0.2 should leave them both of 0.3."""
    cluster = Cluster(machines(1, gpus=2), sharing="devices")
    for gpu in (700, 500):
        cluster.allocate(cluster.room().allocation(one(gpu), [(0, 1)]))
    assert cluster.devices.tolist() == [[300, 500]]
    fgd, packing = DevicePlacement("fgd", target_of([one(500)])), DevicePlacement("gpu_packing")
    assert where(fgd(one(300), cluster.room())) == where(packing(one(300), cluster.room())) == (0, [0])
    only_300 = DevicePlacement("fgd", target_of([one(300)] * 9 + [one(200)]))
    assert where(only_300(one(200), cluster.room())) == (0, [1])
    assert where(packing(one(200), cluster.room())) == (0, [0])


def test_what_is_drawn_depends_on_the_seed_and_the_question_only() -> None:
    cluster = Cluster(machines(9), sharing="devices")
    room = cluster.room()
    answers = {seed: where(DevicePlacement("random", seed=seed)(one(500), room)) for seed in range(40)}
    again = DevicePlacement("random", seed=3)
    for other in (one(100), one(2000), one(500)):
        again(other, room)
    assert where(again(one(500), room)) == answers[3]
    assert {machine for machine, _ in answers.values()} == set(range(9))
    assert {devices[0] for _, devices in answers.values()} == {0, 1, 2, 3}


def test_ties_go_to_the_first_machine_or_to_one_drawn() -> None:
    room = Cluster(machines(5), sharing="devices").room()
    assert {where(DevicePlacement("fgd", seed=seed)(one(500), room))[0] for seed in range(20)} == {0}
    drawn = {where(DevicePlacement("fgd", ties="random", seed=seed)(one(500), room))[0] for seed in range(60)}
    assert drawn == set(range(5))


def test_among_equals_machines_in_use_go_first_so_that_idle_ones_stay_whole() -> None:
    cluster, target = Cluster(machines(3, gpus=2), sharing="devices"), target_of([one(0)])
    cluster.allocate(cluster.room().allocation(one(1000), [(2, 1)]))
    usual, used_first = DevicePlacement("fgd", target), DevicePlacement("fgd_used_first", target)
    assert where(usual(one(300), cluster.room())) == (0, [0])  # nothing can be gained: all machines are alike
    assert where(used_first(one(300), cluster.room())) == (2, [1])


def test_without_a_target_it_is_learnt_from_those_who_arrive() -> None:
    cluster = Cluster(machines(1, gpus=2), sharing="devices")
    for gpu in (700, 500):
        cluster.allocate(cluster.room().allocation(one(gpu), [(0, 1)]))
    known, learning = [one(300)] * 9 + [one(200)], DevicePlacement("fgd")
    assert where(learning(one(200), cluster.room())) == (0, [0])  # nothing is known: all devices are alike
    for demand in known:
        learning.arrived(demand)
    assert where(learning(one(200), cluster.room())) == (0, [1])
    sliding = SlidingTarget(window=5)
    for demand in [one(1)] * 9 + [one(300)] * 5:
        sliding.arrived(demand)
    assert where(DevicePlacement("fgd", sliding)(one(200), cluster.room())) == (0, [1])


def test_forgetting_demands_changes_no_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sharing_placements, "MOST_SHAPES", 3)
    monkeypatch.setattr(sharing_placements, "FEWEST_SHAPES", 1)
    cluster, target = Cluster(machines(3), sharing="devices"), target_of([one(300), one(1000)])
    place = DevicePlacement("fgd", target)
    for gpu in (100, 300, 700, 1000, 300, 200, 100, 500, 300):
        allocation = place(one(gpu), cluster.room())
        assert allocation == DevicePlacement("fgd", target)(one(gpu), cluster.room())
        cluster.allocate(allocation)


def test_one_placement_serves_other_clusters_in_turn() -> None:
    place, first = DevicePlacement("gpu_packing"), Cluster(machines(2, gpus=2), sharing="devices")
    second = Cluster(machines(3, gpus=4), sharing="devices")
    assert where(place(one(2000), first.room())) == (0, [0, 1])
    assert where(place(one(4000), second.room())) == (0, [0, 1, 2, 3])
    assert place(one(4000), first.room()) is None


@pytest.mark.parametrize("policy", [*BASELINES, "fgd", "fgd_used_first", "random"])
def test_is_in_the_registry_fresh_for_everyone(policy: str) -> None:
    made = placement_of(policy, seed=7)
    assert isinstance(made, DevicePlacement)
    assert (made.policy, made.seed, PLACEMENTS[policy].sharing) == (policy, 7, "devices")
    assert placement_of(policy) is not placement_of(policy)


def test_pooled_gpus_and_unknown_names_are_refused() -> None:
    with pytest.raises(BadInput, match="pooled"):
        DevicePlacement("fgd")(one(500), Cluster(machines()).room())
    with pytest.raises(BadInput, match="expected one of best_fit_gpu, dot_product"):
        DevicePlacement("tetris")
