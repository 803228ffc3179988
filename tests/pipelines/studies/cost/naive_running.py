"""A plan run out to its end in plain Python, job by job: what the compiled loop is held against.

Written from the docstrings alone, on floats and lists. Called by the tests of plans that are run out.
"""

from dataclasses import dataclass

from scheduler_core.kernels.lookahead import NONE, Ahead


@dataclass(kw_only=True)
class Job:
    """A job on its way: the share left, seconds of a restart it owes, and where it runs."""

    left: float = 1.0
    owed_s: float = 0.0
    node: int = NONE
    gpus: int = 0


def naive_usd(data: Ahead, order: list[int], most_gpus: list[int], thrifty: list[bool]) -> tuple[float, list[int]]:
    """Return the cost to the end, and the nodes of the first placement."""
    jobs = [Job(node=int(node), gpus=int(gpus)) for node, gpus in zip(data.stay_node, data.stay_gpus, strict=True)]
    ts_s, usd, first = 0.0, 0.0, None
    while True:
        _place(data, jobs, order, most_gpus, thrifty, ts_s)
        first = first or [job.node for job in jobs]
        ends = {at: _needs_s(data, at, job) for at, job in enumerate(jobs) if job.node != NONE}
        if not ends:
            return usd, first
        step_s = min(ends.values())
        for second_usd, from_s, until_s in ((data.now_usd, 0.0, data.period_s), (data.later_usd, data.period_s, 1e18)):
            during_s = max(min(ts_s + step_s, until_s) - max(ts_s, from_s), 0.0)
            usd += _watts(data, jobs) * during_s * second_usd
        ts_s += step_s
        for at, end_s in ends.items():
            job = jobs[at]
            if end_s <= step_s * (1.0 + 1e-12):
                usd += float(data.weight[at]) * max(ts_s - float(data.slack_s[at]), 0.0)
                jobs[at] = Job(left=0.0)
            else:
                working_s = max(step_s - job.owed_s, 0.0)
                job.left -= working_s / float(data.run_s[at, data.kind[job.node], job.gpus])
                job.owed_s = max(job.owed_s - step_s, 0.0)


def _needs_s(data: Ahead, at: int, job: Job) -> float:
    return job.owed_s + job.left * float(data.run_s[at, data.kind[job.node], job.gpus])


def _watts(data: Ahead, jobs: list[Job]) -> float:
    on = {job.node for job in jobs if job.node != NONE}
    busy_w = sum(float(data.active_w[data.kind[job.node]]) * job.gpus for job in jobs if job.node != NONE)
    return busy_w + sum(float(data.idle_w[data.kind[node]]) for node in on)


def _place(
    data: Ahead, jobs: list[Job], order: list[int], most_gpus: list[int], thrifty: list[bool], ts_s: float
) -> None:
    free = [int(room) for room in data.room]
    for at in order:
        job, was = jobs[at], (jobs[at].node, jobs[at].gpus)
        if job.left <= 0.0:
            continue
        fast, cheap = ([(int(kinds[at, o]), int(counts[at, o])) for o in range(data.options[at])] for kinds, counts in (
            (data.fast_kind, data.fast_gpus), (data.cheap_kind, data.cheap_gpus)))  # fmt: skip
        in_time = [
            each
            for each in cheap
            if ts_s + job.left * float(data.run_s[at, each[0], each[1]]) + job.owed_s <= data.slack_s[at]
        ]
        job.node, job.gpus = NONE, 0
        for kind, gpus in [*(in_time if thrifty[at] else []), *fast]:
            room = [node for node in range(len(free)) if data.kind[node] == kind and free[node] >= gpus]
            if room and gpus <= max(most_gpus[at], int(data.least_gpus[at])):
                job.node = was[0] if was[0] in room and was[1] == gpus else min(room, key=lambda node: free[node])
                job.gpus = gpus
                free[job.node] -= gpus
                break
        if was[0] != NONE and (job.node, job.gpus) != was:
            job.owed_s = float(data.restart_s)
