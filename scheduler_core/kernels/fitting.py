"""Whether a gang fits: how many of its instances each machine of a room could take.

A room is what is free on the machines, or what would be (machines, 3). Which machines are taken is in `placing`.
Called by `placing` and the rounds.
"""

from scheduler_core.kernels.kernel import kernel
from scheduler_core.kernels.state import Cluster, Queue
from scheduler_core.types import IntArray


@kernel
def copy_room(room: IntArray, copied: IntArray) -> None:
    """Write a room over another."""
    for machine in range(len(room)):
        for resource in range(3):
            copied[machine, resource] = room[machine, resource]


@kernel
def hosted(room: IntArray, machine: int, units: IntArray, at: int, instances: int) -> int:
    """Return how many instances a machine could take, at most `instances`."""
    count = instances
    for resource in range(3):
        # Most machines take all or none of what is asked: divide for the others only.
        if units[at, resource] * count > room[machine, resource]:
            count = room[machine, resource] // units[at, resource]
    return count


@kernel
def takes_one(room: IntArray, machine: int, units: IntArray, at: int) -> bool:
    """Return whether a machine could take one instance."""
    return bool(
        units[at, 0] <= room[machine, 0] and units[at, 1] <= room[machine, 1] and units[at, 2] <= room[machine, 2]
    )


@kernel
def open_to(cluster: Cluster, machine: int, gpu_type: int) -> bool:
    """Return whether a machine is up and of a type that is asked for, if any is."""
    return bool(cluster.away[machine] == 0 and (gpu_type < 0 or cluster.of_type[gpu_type, machine]))


@kernel
def hosted_in_all(cluster: Cluster, room: IntArray, queue: Queue, at: int) -> int:
    """Return how many instances of a bucket's gang the machines could take together, each at most the gang's number."""
    instances, gpu_type = queue.buckets[at].instances, queue.buckets[at].gpu_type
    count = 0
    for machine in range(len(room)):
        if open_to(cluster, machine, gpu_type):
            count += hosted(room, machine, queue.units, at, instances)
    return count


@kernel
def fits(cluster: Cluster, room: IntArray, queue: Queue, at: int) -> bool:
    """Return whether a bucket's gang fits a room."""
    instances, gpu_type = queue.buckets[at].instances, queue.buckets[at].gpu_type
    missing = instances
    for machine in range(len(room)):
        if open_to(cluster, machine, gpu_type):
            missing -= hosted(room, machine, queue.units, at, instances)
            if missing <= 0:
                return True
    return False


@kernel
def fits_free(cluster: Cluster, queue: Queue, at: int) -> bool:
    """Return whether a bucket's gang fits what is free now.

    What did not fit since the last release does not fit now, and mostly the free totals already say no.
    """
    bucket, releases = queue.buckets[at], queue.tally[0].releases
    if queue.shut[bucket.shape] == releases:
        return False
    fitting = True
    for resource in range(3):
        fitting &= queue.units[at, resource] * bucket.instances <= cluster.total_free[resource]
    fitting = fitting and fits(cluster, cluster.free, queue, at)
    if not fitting:
        queue.shut[bucket.shape] = releases
    return fitting
