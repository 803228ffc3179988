"""Fits and placements of the compiled loop against the plain ones, on random rooms."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from scheduler_core.cluster import Demand, Machine
from scheduler_core.errors import BadInput
from scheduler_core.kernels.ordered import distinct, place_in_order
from scheduler_core.kernels.placing import fits, fits_free, hosted_in_all, placed, share_free
from scheduler_core.kernels.state import PLACEMENT_CODES
from scheduler_core.placement import placement_of
from tests.scheduler_core.kernels import records

TYPES = ("T4", "V100")


@st.composite
def rooms(draw):
    """Draw machines of which some are away, what is free on them, and a demand."""
    count = draw(st.integers(1, 8))
    machines = [
        Machine(
            name=f"m{i}",
            cpu_cores=draw(st.sampled_from([4.0, 7.0, 96.0])),
            mem_gib=draw(st.sampled_from([8.0, 30.0])),
            gpus=draw(st.integers(0, 8)),
            gpu_type=draw(st.sampled_from([None, "P100", *TYPES])),
        )
        for i in range(count)
    ]
    capacity = np.array([[m.cpu_cores * 1000, m.mem_gib * 1024, m.gpus * 1000] for m in machines], dtype=np.int64)
    share = np.array(draw(st.lists(st.sampled_from([0.0, 0.3, 0.5, 1.0]), min_size=3 * count, max_size=3 * count)))
    away = draw(st.lists(st.integers(0, count - 1), max_size=2))
    units = tuple(draw(st.sampled_from([0, 250, 1000, 2048, 4000])) for _ in range(3))
    instances, kind = draw(st.integers(1, 9)), draw(st.integers(-1, 1))
    return machines, (capacity * share.reshape(count, 3)).astype(np.int64), away, units, instances, kind


def held(machines, free, away):
    plain = records.cluster(machines, free)
    for machine in away:
        plain.down(machine)
    return plain, *records.laid_out(plain)


def as_demand(units, instances, kind):
    return Demand(units=units, instances=instances, gpu_type=None if kind < 0 else TYPES[kind])


@given(room=rooms())
def test_fits_as_the_plain_engine_says(room):
    machines, free, away, units, instances, kind = room
    plain, cluster, _ = held(machines, free, away)
    queue, demand = records.demand(units, instances, kind), as_demand(units, instances, kind)
    assert hosted_in_all(cluster, cluster.free, queue, 0) == plain.room().hosts(demand).sum()
    assert fits(cluster, cluster.free, queue, 0) == fits_free(cluster, queue, 0) == plain.room().fits(demand)


@pytest.mark.parametrize("name", sorted(PLACEMENT_CODES))
@given(room=rooms())
def test_places_as_the_plain_engine_does(name, room):
    machines, free, away, units, instances, kind = room
    plain, cluster, scratch = held(machines, free, away)
    queue, demand = records.demand(units, instances, kind), as_demand(units, instances, kind)
    expected = placement_of(name)(demand, plain.room())
    if expected is not None:
        used = placed(PLACEMENT_CODES[name], cluster, cluster.free, cluster.room, queue, 0, scratch)
        found = tuple(zip(scratch.chosen[:used].tolist(), scratch.counts[:used].tolist(), strict=True))
        assert found == expected.counts


@given(st.lists(st.tuples(*[st.integers(0, 10**7)] * 3), min_size=1, max_size=600))
def test_shares_are_summed_as_numpy_sums_them(rows):
    free = np.array(rows, dtype=np.int64)
    largest = np.array([96_000, 524_288, 8000])
    found = [share_free(free, machine, largest.astype(np.float64)) for machine in range(len(free))]
    assert found == (free / largest).sum(axis=1).tolist()


@pytest.mark.parametrize("name", sorted(PLACEMENT_CODES))
@given(room=rooms(), more=st.lists(st.tuples(st.sampled_from([0, 500, 1000]), st.integers(1, 3)), max_size=12))
def test_an_ordered_list_goes_where_one_after_the_other_goes(name, room, more):
    machines, free, away, units, instances, kind = room
    plain, _, _ = held(machines, free, away)
    demands = [as_demand(units, instances, kind)]
    demands += [Demand(units=(gpus, 1024, gpus), instances=count) for gpus, count in more]
    found = place_in_order(demands, plain, name)
    for demand, allocation in zip(demands, found, strict=True):
        expected = placement_of(name)(demand, plain.room())
        assert allocation == expected
        if expected is not None:
            plain.allocate(expected)


def test_a_placement_nobody_knows_is_refused():
    plain = records.cluster([Machine(name="m", cpu_cores=1.0, mem_gib=1.0, gpus=1)], [[0, 0, 0]])
    with pytest.raises(BadInput, match="worst_fit"):
        place_in_order([], plain, "worst_fit")


@given(st.lists(st.tuples(*[st.integers(0, 2)] * 6), max_size=60))
def test_equal_rows_share_a_number(rows):
    matrix = np.array(rows, dtype=np.int64).reshape(-1, 6)
    codes, first = distinct(matrix)
    assert (matrix[first][codes] == matrix).all()
    assert len(first) == len(set(rows))
