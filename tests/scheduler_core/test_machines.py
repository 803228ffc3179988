"""What an empty cluster could host, by kinds of machines, against its room."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from scheduler_core.cluster import Cluster, Demand, Machine
from scheduler_core.devices import Sharing
from scheduler_core.machines import MachineKind, kinds_of

TYPES = [None, "", "T4", "V100", "V100|T4", "A100"]

MACHINES = st.lists(
    st.tuples(st.sampled_from([2.0, 8.0]), st.integers(0, 4), st.sampled_from([None, "T4", "V100"])),
    min_size=1,
    max_size=6,
)
DEMANDS = st.builds(
    Demand,
    units=st.tuples(
        st.sampled_from([0, 500, 4000]), st.sampled_from([0, 2048]), st.sampled_from([0, 300, 1000, 1500, 2000])
    ),
    instances=st.integers(1, 9),
    gpu_type=st.sampled_from(TYPES),
)


@pytest.mark.parametrize("sharing", ["pooled", "devices"])
@given(kinds=MACHINES, demand=DEMANDS)
def test_an_empty_cluster_hosts_what_its_room_says(
    sharing: Sharing, kinds: list[tuple[float, int, str | None]], demand: Demand
) -> None:
    machines = [
        Machine(name=f"m{at}", cpu_cores=cores, mem_gib=8.0, gpus=gpus, gpu_type=kind)
        for at, (cores, gpus, kind) in enumerate(kinds)
    ]
    cluster = Cluster(machines, sharing)

    assert cluster.could_host(demand) == cluster.room().fits(demand)


def test_what_is_taken_and_who_is_away_do_not_count() -> None:
    cluster = Cluster([Machine(name="m", cpu_cores=8.0, mem_gib=8.0, gpus=2)])
    whole = Demand(units=(8000, 8192, 2000), instances=1)
    cluster.allocate(cluster.room().allocation(whole, [(0, 1)]))
    cluster.down(0)

    assert cluster.could_host(whole)
    assert not cluster.could_host(Demand(units=(8000, 8192, 2001), instances=1))


def test_equal_machines_are_one_kind() -> None:
    one = MachineKind(units=(1, 1, 1), gpu_type=None, devices=None)
    other = MachineKind(units=(1, 1, 1), gpu_type="T4", devices=None)

    assert kinds_of([other, one, one]) == [(one, 2), (other, 1)]
