"""Offers of a round: a heap of buckets by the effective key and the serial of their first jobs.

Dominant shares only grow within a round, so under DRF an entry is looked at anew when it comes to the top.
Called by the rounds.
"""

from pipelines.simulation.engine.compiled.entries import risen, sunk, swapped
from pipelines.simulation.engine.compiled.starts import DRF
from scheduler_core.kernels.kernel import kernel
from scheduler_core.kernels.state import NONE, Cluster, State


@kernel
def dominant_share(cluster: Cluster, user: int) -> float:
    """Return the largest share of any resource that a user holds, of the capacity of all machines."""
    share = 0.0
    for resource in range(3):
        share = max(share, cluster.held[user, resource] / cluster.total[resource])
    return share


@kernel
def _rank(state: State, at: int) -> float:
    """Return what the first job of a bucket is ranked by now."""
    row = state.queue.jobs[state.queue.buckets[at].top]
    if state.rules.policy == DRF:
        return float(dominant_share(state.cluster, row.user) + state.rules.aging * row.arrive_s)
    return float(row.rank)


@kernel
def offer(state: State, at: int) -> None:
    """Add a filled bucket."""
    offers, tally = state.scratch.offers, state.queue.tally[0]
    place = tally.offers
    offers[place].value = _rank(state, at)
    offers[place].tie = state.queue.buckets[at].top
    offers[place].what = at
    risen(offers, place)
    tally.offers += 1


@kernel
def next_offer(state: State) -> int:
    """Remove the bucket whose first job goes next, and return it; NONE where there is none."""
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
    """Add a bucket whose first job was dealt with, if it holds another."""
    if state.queue.buckets[at].top != NONE:
        offer(state, at)


@kernel
def offer_all(state: State) -> None:
    """Add every filled bucket to none."""
    queue = state.queue
    queue.tally[0].offers = 0
    for place in range(queue.tally[0].filled):
        offer(state, queue.filled[place])
