"""The queue order of a round: a heap of buckets (jobs of equal demand), sorted by the key of their first jobs.

Ties are broken by serial. The buckets in the heap are called offers. Under DRF the keys depend on dominant shares,
which only grow within a round, so a key is computed again when its bucket reaches the top of the heap.
"""

from scheduler_core.kernels.heaps import risen, sunk, swapped
from scheduler_core.kernels.kernel import kernel
from scheduler_core.kernels.records import DRF
from scheduler_core.kernels.state import NONE, Cluster, State


@kernel
def dominant_share(cluster: Cluster, user: int) -> float:
    """Return a user's dominant share: the share of the cluster that the user holds, maximum over resources."""
    share = 0.0
    for resource in range(3):
        share = max(share, cluster.held[user, resource] / cluster.total[resource])
    return share


@kernel
def _rank(state: State, at: int) -> float:
    """Return the current sort key of the first job of bucket `at`."""
    row = state.queue.jobs[state.queue.buckets[at].top]
    if state.rules.policy == DRF:
        return float(dominant_share(state.cluster, row.user) + state.rules.aging * row.arrive_s)
    return float(row.rank)


@kernel
def offer(state: State, at: int) -> None:
    """Add the non-empty bucket `at` to the offers."""
    offers, tally = state.scratch.offers, state.queue.tally[0]
    place = tally.offers
    offers[place].value = _rank(state, at)
    offers[place].tie = state.queue.buckets[at].top
    offers[place].what = at
    risen(offers, place)
    tally.offers += 1


@kernel
def next_offer(state: State) -> int:
    """Remove from the offers the bucket whose first job goes next, and return it; NONE if no bucket is left."""
    offers, tally = state.scratch.offers, state.queue.tally[0]
    while tally.offers > 0:
        at = offers[0].what
        rank = _rank(state, at)
        if rank > offers[0].value:
            offers[0].value = rank
            sunk(offers, 0, tally.offers)
            continue
        tally.offers -= 1
        swapped(offers, 0, tally.offers)
        sunk(offers, 0, tally.offers)
        return int(at)
    return NONE


@kernel
def offer_again(state: State, at: int) -> None:
    """Add bucket `at` to the offers if its heap holds a waiting job."""
    if state.queue.buckets[at].top != NONE:
        offer(state, at)


@kernel
def offer_all(state: State) -> None:
    """Fill the offers with all buckets whose heaps hold a waiting job."""
    queue = state.queue
    queue.tally[0].offers = 0
    for place in range(queue.tally[0].filled):
        offer_again(state, queue.filled[place])
