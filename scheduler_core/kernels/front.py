"""What backfill keeps sorted from round to round: the first waiting jobs, and the current runs by expected end.

The first jobs are in `Queue.front`, and not in the heaps of their buckets.
"""

from scheduler_core.kernels.kernel import kernel
from scheduler_core.kernels.state import Log, Queue, Rules
from scheduler_core.kernels.waiting import before, bucket_of, count_in, count_out, link


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
def expect(log: Log, count: int, run: int, end_s: float) -> None:
    """Add a run to the current runs by expected end, of which there are `count`; its number is larger than theirs."""
    expected, place = log.expected, count
    while place > 0 and expected[place - 1].end_s > end_s:
        expected[place] = expected[place - 1]
        place -= 1
    expected[place].end_s = end_s
    expected[place].run = run


@kernel
def unexpect(log: Log, count: int, run: int, end_s: float) -> None:
    """Remove a run from the current runs by expected end, of which there are `count`."""
    expected, low, high = log.expected, 0, count
    while low < high:
        middle = (low + high) // 2
        if expected[middle].end_s < end_s or (expected[middle].end_s == end_s and expected[middle].run < run):
            low = middle + 1
        else:
            high = middle
    for place in range(low, count - 1):
        expected[place] = expected[place + 1]
