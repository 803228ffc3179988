"""The event loop: moment by moment, what happens, then one round. Resumed where the arrays of runs have grown.

Called by `run`.
"""

import math
from pathlib import Path

from pipelines.simulation.engine.compiled.backfill import easy_round
from pipelines.simulation.engine.compiled.moments import (
    admit,
    bring_up,
    count_stranded,
    end_runs,
    next_moment,
    take_down,
)
from pipelines.simulation.engine.compiled.preemption import preempting_round
from pipelines.simulation.engine.compiled.walk import bounded_round, unbounded_round
from scheduler_core.kernels.kernel import SOURCES, Compiled, digest, kept, kernel
from scheduler_core.kernels.placing import fits
from scheduler_core.kernels.state import State


@kernel
def _has_room(state: State) -> bool:
    """Return whether all that wait could start in one round and be written down."""
    tally, log = state.queue.tally[0], state.log
    return bool(tally.runs + tally.waiting < len(log.runs) and tally.hosts + tally.waiting_hosts <= len(log.hosts))


@kernel
def _round(state: State) -> None:
    if state.rules.preempting:
        preempting_round(state)
    elif state.rules.easy:
        easy_round(state)
    elif state.rules.overtakes >= 0:
        bounded_round(state)
    else:
        unbounded_round(state)


@kernel
def _judge(state: State) -> None:
    """Find out which gangs fit the empty cluster; the others never will."""
    queue, cluster = state.queue, state.cluster
    for at in range(len(queue.buckets)):
        queue.buckets[at].possible = fits(cluster, cluster.capacity, queue, at)


def _looping(sources: str) -> Compiled:
    @kept
    def advance(state: State) -> bool:
        _ = sources  # part of what the compiled code is kept under
        tally, horizon_s = state.queue.tally[0], state.rules.horizon_s
        if tally.arrivals == 0:
            _judge(state)
        while _has_room(state):
            _round(state)
            upcoming_s = next_moment(state)
            if upcoming_s > horizon_s or upcoming_s == math.inf:
                if horizon_s < math.inf:
                    count_stranded(state, horizon_s)
                return True
            count_stranded(state, upcoming_s)
            tally.now_s = upcoming_s
            end_runs(state)
            bring_up(state)
            take_down(state)
            admit(state)
        return False

    return advance


advance = _looping(SOURCES + digest(Path(__file__).parent))
"""Go on until nothing more happens before the horizon (true), or until the log has to grow first (false)."""
