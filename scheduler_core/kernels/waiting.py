"""Waiting jobs in queue order.

Each bucket (jobs of equal demand) has a pairing heap, sorted by rank (sort key) and then serial, whose links are fields
of the job records. A round draws from the offers: a heap of buckets, sorted by the keys of their first jobs. Under DRF
these keys depend on dominant shares, which only grow within a round, so a key is computed again when its bucket reaches
the top. With backfill the first jobs stay sorted from round to round in `Queue.front`, and not in the heaps.

References
----------
Fredman, Sedgewick, Sleator, Tarjan: The pairing heap, Algorithmica 1986.
"""

from scheduler_core.kernels.heaps import popped, pushed, sunk
from scheduler_core.kernels.kernel import kernel
from scheduler_core.kernels.records import DRF, NONE, Records
from scheduler_core.kernels.state import Cluster, Queue, Rules, State


@kernel
def before(jobs: Records, one: int, other: int) -> bool:
    """Return whether waiting job `one` goes before waiting job `other` in the queue."""
    mine, theirs = jobs[one].rank, jobs[other].rank
    return bool(mine < theirs or (mine == theirs and one < other))


@kernel
def _linked(jobs: Records, one: int, other: int) -> int:
    """Merge two heaps by their roots: the root that goes first gets the other as its first child; return it."""
    if before(jobs, other, one):
        one, other = other, one
    jobs[other].sibling = jobs[one].child
    jobs[one].child = other
    return one


@kernel
def _paired(jobs: Records, first: int) -> int:
    """Merge the heaps from `first` and its siblings into one heap and return its root.

    They are merged in pairs from the left, then the pairs from the right.
    """
    pairs = NONE
    while first != NONE:
        one, other = first, jobs[first].sibling
        first = NONE
        jobs[one].sibling = NONE
        if other != NONE:
            first = jobs[other].sibling
            jobs[other].sibling = NONE
            one = _linked(jobs, one, other)
        jobs[one].sibling = pairs
        pairs = one
    root = NONE
    while pairs != NONE:
        following = jobs[pairs].sibling
        jobs[pairs].sibling = NONE
        root = pairs if root == NONE else _linked(jobs, root, pairs)
        pairs = following
    return root


@kernel
def bucket_of(jobs: Records, job: int) -> int:
    """Return the bucket of a job: by its full request after a kill, otherwise by its granted units."""
    return int(jobs[job].full_bucket if jobs[job].full else jobs[job].granted_bucket)


@kernel
def link(queue: Queue, job: int) -> None:
    """Add a job to the heap of its bucket, sorted by its rank."""
    jobs, bucket = queue.jobs, queue.buckets[bucket_of(queue.jobs, job)]
    jobs[job].child = NONE
    jobs[job].sibling = NONE
    bucket.top = job if bucket.top == NONE else _linked(jobs, bucket.top, job)


@kernel
def unlink(queue: Queue, at: int) -> int:
    """Remove the first job from the heap of bucket `at`, and return it."""
    bucket = queue.buckets[at]
    job = bucket.top
    bucket.top = _paired(queue.jobs, queue.jobs[job].child)
    return int(job)


@kernel
def count_in(queue: Queue, machines: int, at: int) -> None:
    """Count a job of bucket `at` as waiting; `machines` is the number of machines."""
    tally, bucket = queue.tally[0], queue.buckets[at]
    if bucket.waiting == 0:
        bucket.place = tally.filled
        queue.filled[tally.filled] = at
        tally.filled += 1
    bucket.waiting += 1
    tally.waiting += 1
    tally.waiting_hosts += min(bucket.instances, machines)


@kernel
def count_out(queue: Queue, machines: int, at: int) -> None:
    """Count one job less of bucket `at` as waiting."""
    tally, bucket = queue.tally[0], queue.buckets[at]
    bucket.waiting -= 1
    tally.waiting -= 1
    tally.waiting_hosts -= min(bucket.instances, machines)
    if bucket.waiting == 0:
        tally.filled -= 1
        last = queue.filled[tally.filled]
        queue.filled[bucket.place] = last
        queue.buckets[last].place = bucket.place


@kernel
def take(queue: Queue, machines: int, at: int) -> int:
    """Remove the first waiting job of bucket `at`, whose heap is not empty, and return it."""
    count_out(queue, machines, at)
    return int(unlink(queue, at))


@kernel
def join_front(rules: Rules, queue: Queue, machines: int, job: int) -> None:
    """Add a waiting job to the front, or to its bucket's heap if it goes behind the whole front.

    If the front holds more jobs than backfill considers, its last job goes to its bucket's heap.
    """
    front, tally = queue.front, queue.tally[0]
    count_in(queue, machines, bucket_of(queue.jobs, job))
    if before(queue.jobs, front[tally.front - 1].job, job):
        link(queue, job)
        return
    place = tally.front
    while place > 0 and before(queue.jobs, job, front[place - 1].job):
        front[place] = front[place - 1]
        place -= 1
    front[place].job = job
    front[place].bucket = bucket_of(queue.jobs, job)
    tally.front += 1
    if tally.front > rules.depth + 1:
        tally.front -= 1
        link(queue, front[tally.front].job)


@kernel
def leave_front(queue: Queue, machines: int, place: int) -> int:
    """Remove the job at index `place` of the front, and return it."""
    front, tally = queue.front, queue.tally[0]
    job, at = int(front[place].job), int(front[place].bucket)
    tally.front -= 1
    for later in range(place, tally.front):
        front[later] = front[later + 1]
    count_out(queue, machines, at)
    return job


@kernel
def clear_front(queue: Queue) -> None:
    """Move all jobs of the front to the heaps of their buckets."""
    for place in range(queue.tally[0].front):
        link(queue, queue.front[place].job)
    queue.tally[0].front = 0


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
    tally = state.queue.tally[0]
    pushed(state.scratch.offers, tally.offers, _rank(state, at), state.queue.buckets[at].top, at)
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
        tally.offers = popped(offers, tally.offers)
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
