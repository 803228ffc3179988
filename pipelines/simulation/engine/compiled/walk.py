"""A round without backfill or preemption: offer waiting jobs in order, start those that fit, count who passes the head.

Free capacity only falls within a round, so a bucket that did not fit once is not tried again; without a bound on
overtakes what did not fit since the last release need not be tried at all. Called by `loop`.
"""

from pipelines.simulation.engine.compiled.offers import next_offer, offer, offer_again, offer_all
from pipelines.simulation.engine.compiled.starts import start
from pipelines.simulation.engine.compiled.waiting import take
from scheduler_core.kernels.kernel import kernel
from scheduler_core.kernels.placing import fits_free
from scheduler_core.kernels.state import NONE, State


@kernel
def unbounded_round(state: State) -> None:
    """Start every job that fits, in order."""
    queue, cluster = state.queue, state.cluster
    tally = queue.tally[0]
    tally.offers = 0
    for place in range(tally.settled, tally.filled):
        if fits_free(cluster, queue, queue.filled[place]):
            offer(state, queue.filled[place])
    at = next_offer(state)
    while at != NONE:
        if fits_free(cluster, queue, at):
            start(state, take(queue, len(cluster.free), at))
            offer_again(state, at)
        at = next_offer(state)
    tally.settled = tally.filled


@kernel
def bounded_round(state: State) -> None:
    """Start jobs in order until as many have passed the head, the first that does not fit, as may."""
    queue, cluster = state.queue, state.cluster
    tally, bound = queue.tally[0], state.rules.overtakes
    offer_all(state)
    head = NONE
    at = next_offer(state)
    while at != NONE and (head == NONE or tally.overtaken < bound):
        if fits_free(cluster, queue, at):
            start(state, take(queue, len(cluster.free), at))
            offer_again(state, at)
            if head != NONE:
                tally.overtaken += 1
        elif head == NONE:
            head = queue.buckets[at].top
            if tally.head != head:
                tally.overtaken = 0
        at = next_offer(state)
    tally.head = head
