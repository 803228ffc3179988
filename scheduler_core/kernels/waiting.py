"""Waiting jobs: each bucket (jobs of equal demand) has a pairing heap, sorted by rank (sort key) and then serial.

The links of the heap are fields of the job records. The order among buckets is in `offers`.

References
----------
Fredman, Sedgewick, Sleator, Tarjan: The pairing heap, Algorithmica 1986.
"""

from scheduler_core.kernels.kernel import kernel
from scheduler_core.kernels.records import NONE, Records
from scheduler_core.kernels.state import Queue


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
    if bucket.gang_gpus > 0 and tally.smallest_gpus != NONE:
        known = tally.smallest_gpus
        tally.smallest_gpus = bucket.gang_gpus if known == 0 else min(known, bucket.gang_gpus)


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
        if bucket.gang_gpus == tally.smallest_gpus:
            tally.smallest_gpus = NONE


@kernel
def put(queue: Queue, machines: int, job: int) -> None:
    """Add a waiting job to the heap of its bucket."""
    link(queue, job)
    count_in(queue, machines, bucket_of(queue.jobs, job))


@kernel
def take(queue: Queue, machines: int, at: int) -> int:
    """Remove the first waiting job of bucket `at`, whose heap is not empty, and return it."""
    count_out(queue, machines, at)
    return int(unlink(queue, at))


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
