"""Offers of a round: a heap of buckets by the effective key and the serial of their first jobs.

Dominant shares only grow within a round, so under DRF an entry is looked at anew when it comes to the top.
Called by the rounds.
"""

from scheduler_core.compiled.kernel import kernel
from scheduler_core.compiled.starts import DRF
from scheduler_core.compiled.state import NONE, Cluster, Records, State


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
def _sooner(offers: Records, one: int, other: int) -> bool:
    mine, theirs = offers[one].rank, offers[other].rank
    return bool(mine < theirs or (mine == theirs and offers[one].job < offers[other].job))


@kernel
def _swapped(offers: Records, one: int, other: int) -> None:
    rank, job, bucket = offers[one].rank, offers[one].job, offers[one].bucket
    offers[one].rank = offers[other].rank
    offers[one].job = offers[other].job
    offers[one].bucket = offers[other].bucket
    offers[other].rank = rank
    offers[other].job = job
    offers[other].bucket = bucket


@kernel
def _sunk(offers: Records, place: int, count: int) -> None:
    while True:
        child = 2 * place + 1
        if child >= count:
            return
        if child + 1 < count and _sooner(offers, child + 1, child):
            child += 1
        if not _sooner(offers, child, place):
            return
        _swapped(offers, place, child)
        place = child


@kernel
def offer(state: State, at: int) -> None:
    """Add a filled bucket."""
    offers, tally = state.scratch.offers, state.queue.tally[0]
    place = tally.offers
    offers[place].rank = _rank(state, at)
    offers[place].job = state.queue.buckets[at].top
    offers[place].bucket = at
    while place > 0 and _sooner(offers, place, (place - 1) // 2):
        _swapped(offers, place, (place - 1) // 2)
        place = (place - 1) // 2
    tally.offers += 1


@kernel
def next_offer(state: State) -> int:
    """Remove the bucket whose first job goes next, and return it; NONE where there is none."""
    offers, tally = state.scratch.offers, state.queue.tally[0]
    while tally.offers > 0:
        at = offers[0].bucket
        rank = _rank(state, at)
        if rank > offers[0].rank:
            offers[0].rank = rank
            _sunk(offers, 0, tally.offers)
            continue
        tally.offers -= 1
        _swapped(offers, 0, tally.offers)
        _sunk(offers, 0, tally.offers)
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
