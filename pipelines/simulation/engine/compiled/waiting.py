"""Waiting jobs: each bucket (jobs of equal demand) has a pairing heap, sorted by rank (sort key) and then serial.

The links of the heap are fields of the job records. The order among buckets is in `offers`.
Called by `loop`, `starts` and the rounds.

References
----------
Fredman, Sedgewick, Sleator, Tarjan: The pairing heap, Algorithmica 1986.
"""

from scheduler_core.kernels.kernel import kernel
from scheduler_core.kernels.state import NONE, Queue, Records


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
def put(queue: Queue, machines: int, job: int) -> None:
    """Add a waiting job to its bucket, sorted by its rank; `machines` is the number of machines."""
    jobs, tally = queue.jobs, queue.tally[0]
    at = bucket_of(jobs, job)
    bucket = queue.buckets[at]
    jobs[job].child = NONE
    jobs[job].sibling = NONE
    if bucket.top == NONE:
        bucket.top = job
        bucket.place = tally.filled
        queue.filled[tally.filled] = at
        tally.filled += 1
    else:
        bucket.top = _linked(jobs, bucket.top, job)
    tally.waiting += 1
    tally.waiting_hosts += min(bucket.instances, machines)
    if bucket.gang_gpus > 0 and tally.smallest_gpus != NONE:
        known = tally.smallest_gpus
        tally.smallest_gpus = bucket.gang_gpus if known == 0 else min(known, bucket.gang_gpus)


@kernel
def take(queue: Queue, machines: int, at: int) -> int:
    """Remove the first waiting job of the non-empty bucket `at`, and return it."""
    jobs, tally, bucket = queue.jobs, queue.tally[0], queue.buckets[at]
    job = bucket.top
    bucket.top = _paired(jobs, jobs[job].child)
    tally.waiting -= 1
    tally.waiting_hosts -= min(bucket.instances, machines)
    if bucket.top == NONE:
        tally.filled -= 1
        last = queue.filled[tally.filled]
        queue.filled[bucket.place] = last
        queue.buckets[last].place = bucket.place
        if bucket.gang_gpus == tally.smallest_gpus:
            tally.smallest_gpus = NONE
    return int(job)


@kernel
def smallest_gpus(queue: Queue) -> int:
    """Return the smallest number of milli-GPUs that a waiting job needs, above 0; 0 if no waiting job needs a GPU."""
    tally = queue.tally[0]
    if tally.smallest_gpus == NONE:
        tally.smallest_gpus = 0
        for place in range(tally.filled):
            asked = queue.buckets[queue.filled[place]].gang_gpus
            if asked > 0 and (tally.smallest_gpus == 0 or asked < tally.smallest_gpus):
                tally.smallest_gpus = asked
    return int(tally.smallest_gpus)
