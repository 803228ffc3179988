"""One simulation by the compiled loop, from columns to columns; the same to the bit as the plain engine.

The semantics are those of `plain` and `rounds`, which are made to be read. Called by `simulator`.
"""

import math
from collections.abc import Sequence

import numpy as np

from pipelines.simulation.engine.compiled.loop import advance
from pipelines.simulation.engine.compiled.setup import breaks_of, log_of, queue_of, rules_of
from pipelines.simulation.engine.schedule import Schedule
from pipelines.simulation.engine.workload import Outages, Workload
from scheduler_core import cluster as machinery
from scheduler_core.discipline import Discipline
from scheduler_core.kernels.state import Log, Records, State, cluster_of, scratch_of


def run_compiled(
    workload: Workload,
    machines: Sequence[machinery.Machine],
    discipline: Discipline,
    horizon_s: float,
    outages: Outages,
) -> Schedule:
    """Run a workload under a discipline of named policy and placement.

    The arguments are those that `simulator.simulate` has checked.
    """
    state = _begun(workload, machinery.Cluster(machines), discipline, horizon_s, outages)
    while not advance(state):
        state = state._replace(log=_grown(state))
    tally, jobs, log = state.queue.tally[0], state.queue.jobs, state.log
    runs = log.runs[: tally["runs"] + 1]
    hosts = int(tally["hosts"])
    return Schedule(
        workload=workload,
        machines=tuple(machines),
        end_s=float(horizon_s if math.isfinite(horizon_s) else tally["now_s"]),
        job=runs["job"][:-1].copy(),
        start_s=runs["start_s"][:-1].copy(),
        end_run_s=runs["end_s"][:-1].copy(),
        full=runs["full"][:-1].copy(),
        ending=runs["ending"][:-1].copy(),
        host_offsets=runs["first_host"].copy(),
        hosts=log.hosts[:hosts].copy(),
        host_counts=log.counts[:hosts].copy(),
        never_fits=jobs["never_fits"].copy(),
        finished_s=jobs["finished_s"].copy(),
        stranded_gpu_s=float(tally["stranded_gpu_s"]),
    )


def _begun(
    workload: Workload,
    cluster: machinery.Cluster,
    discipline: Discipline,
    horizon_s: float,
    outages: Outages,
) -> State:
    queue = queue_of(workload, discipline)
    machines = len(cluster.machines)
    users = int(queue.jobs["user"].max(initial=0)) + 1
    return State(
        rules=rules_of(discipline, horizon_s),
        queue=queue,
        cluster=cluster_of(cluster, workload.gpu_types, users),
        log=log_of(workload, machines),
        breaks=breaks_of(outages),
        scratch=scratch_of(len(workload), len(queue.buckets), machines),
    )


def _grown(state: State) -> Log:
    """Return the log with room for twice as much, and at least for all that wait."""
    log, tally = state.log, state.queue.tally[0]
    return log._replace(
        runs=_longer(log.runs, int(tally["runs"] + tally["waiting"]) + 1),
        hosts=_longer(log.hosts, int(tally["hosts"] + tally["waiting_hosts"])),
        counts=_longer(log.counts, int(tally["hosts"] + tally["waiting_hosts"])),
    )


def _longer(column: Records, needed: int) -> Records:
    longer = np.zeros(max(2 * len(column), needed), dtype=column.dtype)
    longer[: len(column)] = column
    return longer
