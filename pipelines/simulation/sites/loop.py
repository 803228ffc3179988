"""The compiled environment: jobs arrive, start, end or are withdrawn in steps of 15 minutes, for a batch of weeks.

`environment` makes the state and calls `run` with a rule, or `prepare` and `act` with an agent's actions.
"""

from typing import NamedTuple

from pipelines.simulation.sites.weeks import Weeks
from scheduler_core.kernels.kernel import kept, kernel
from scheduler_core.kernels.site_choice import Scratch, crowding_of, decide_in, features_in
from scheduler_core.kernels.site_value import DAY, STEPS_PER_H, WAIT, Jobs, Outlook
from scheduler_core.types import BoolArray, FloatArray, IntArray

__all__ = ["State", "act", "prepare", "run"]


class State(NamedTuple):
    """State of B weeks.

    `start` and `site` (B, n) are -1 for jobs that never started. `waiting` and `running` (B, n) list rows of jobs, the
    former by due date; `tally` (B, 4) has the step, the lengths of both lists and the next arrival. `decided` (B, n)
    is the last step in which an agent let a job wait. `head` (B, S) is the job of each agent now, or -1. `sums` is the
    forecast of the outlook, `scratch` memory.
    """

    start: IntArray
    site: IntArray
    waiting: IntArray
    running: IntArray
    tally: IntArray
    free: IntArray
    decided: IntArray
    head: IntArray
    sums: FloatArray
    chosen: IntArray
    scratch: Scratch


NOW, WAITING, RUNNING, NEXT = range(4)


@kernel
def _jobs(weeks: Weeks, b: int) -> Jobs:
    jobs = weeks.jobs
    return Jobs(jobs.gpus[b], jobs.steps[b], jobs.due[b], jobs.origin[b], jobs.move_usd[b])


@kernel
def _seen(weeks: Weeks, state: State, b: int) -> Outlook:
    return Outlook(
        state.sums[b],
        state.free[b],
        weeks.capacity[b],
        weeks.worth_usd[b],
        weeks.miss_usd[b],
    )


@kernel
def _scratch(state: State, b: int) -> Scratch:
    made = state.scratch
    return Scratch(made.later_usd[b], made.later_at[b], made.row[b])


@kernel
def _look(weeks: Weeks, state: State, b: int) -> None:
    """Set the forecast cost at the present step, by "the same hour of the day before"."""
    now = state.tally[b, NOW]
    hour = DAY // STEPS_PER_H + now // STEPS_PER_H
    for site in range(state.sums.shape[1]):
        total = 0.0
        for step in range(DAY):
            ahead = (now % STEPS_PER_H + step) // STEPS_PER_H
            at = hour if ahead == 0 else hour + ahead - DAY // STEPS_PER_H
            total += weeks.usd[b, site, at]
            state.sums[b, site, step + 1] = total


@kernel
def _start(state: State, b: int, job: int, site: int) -> None:
    """Record the start of a job now; its free GPUs have been taken."""
    now = state.tally[b, NOW]
    state.start[b, job], state.site[b, job] = now, site
    state.running[b, state.tally[b, RUNNING]] = job
    state.tally[b, RUNNING] += 1


@kernel
def _keep_waiting(weeks: Weeks, state: State, b: int) -> None:
    """Remove started jobs from the queue, and withdraw jobs whose due date has come."""
    kept_, now = 0, state.tally[b, NOW]
    for place in range(state.tally[b, WAITING]):
        job = state.waiting[b, place]
        if state.start[b, job] < 0 and weeks.jobs.due[b, job] > now:
            state.waiting[b, kept_] = job
            kept_ += 1
    state.tally[b, WAITING] = kept_


@kernel
def _tick(weeks: Weeks, state: State, b: int) -> None:
    """Advance by one step: end jobs, withdraw jobs, admit arrivals by due date."""
    state.tally[b, NOW] += 1
    now, going = state.tally[b, NOW], 0
    for place in range(state.tally[b, RUNNING]):
        job = state.running[b, place]
        site, begun = state.site[b, job], state.start[b, job]
        if begun + weeks.run_steps[b, job] > now:
            state.running[b, going] = job
            going += 1
        else:
            state.free[b, site] += weeks.jobs.gpus[b, job]
    state.tally[b, RUNNING] = going
    _keep_waiting(weeks, state, b)
    _admit(weeks, state, b)
    _look(weeks, state, b)


@kernel
def _admit(weeks: Weeks, state: State, b: int) -> None:
    """Insert the jobs that have arrived into the queue, which is sorted by due date and then row."""
    due = weeks.jobs.due[b]
    while state.tally[b, NEXT] < weeks.arrive.shape[1] and weeks.arrive[b, state.tally[b, NEXT]] <= state.tally[b, NOW]:
        job, at = state.tally[b, NEXT], state.tally[b, WAITING]
        while at > 0 and due[state.waiting[b, at - 1]] > due[job]:
            state.waiting[b, at] = state.waiting[b, at - 1]
            at -= 1
        state.waiting[b, at] = job
        state.tally[b, WAITING] += 1
        state.tally[b, NEXT] += 1


@kernel
def _over(weeks: Weeks, state: State, b: int) -> bool:
    """Return whether all jobs of a week have arrived and none waits."""
    next_ = state.tally[b, NEXT]
    none_left = next_ == weeks.arrive.shape[1] or weeks.arrive[b, next_] > weeks.last_step[b]
    return bool(none_left and state.tally[b, WAITING] == 0)


@kept
def run(rule: int, params: FloatArray, weeks: Weeks, state: State) -> None:
    """Run every week to its end with one policy; `params` (B, p) may differ between weeks."""
    for b in range(len(state.tally)):
        while not _over(weeks, state, b):
            _tick(weeks, state, b)
            if state.tally[b, WAITING] == 0:
                continue
            count, chosen = state.tally[b, WAITING], state.chosen[b]
            decide_in(
                rule,
                params[b],
                _jobs(weeks, b),
                _seen(weeks, state, b),
                state.tally[b, NOW],
                state.waiting[b],
                count,
                _scratch(state, b),
                chosen,
            )
            for place in range(count):
                if chosen[place] != WAIT:
                    _start(state, b, state.waiting[b, place], chosen[place])
            _keep_waiting(weeks, state, b)


@kernel
def _set_heads(weeks: Weeks, state: State, b: int, mask: BoolArray) -> int:
    """Set each agent's most urgent job that could start somewhere and is undecided in this step; return how many."""
    now, sites, found = state.tally[b, NOW], state.free.shape[1], 0
    for site in range(sites):
        state.head[b, site] = -1
        mask[b, site, :] = False
        mask[b, site, sites] = True
    for place in range(state.tally[b, WAITING]):
        job = state.waiting[b, place]
        agent = weeks.jobs.origin[b, job]
        if state.head[b, agent] >= 0 or state.decided[b, job] == now or state.start[b, job] >= 0:
            continue
        for site in range(sites):
            if state.free[b, site] >= weeks.jobs.gpus[b, job]:
                mask[b, agent, site] = True
                state.head[b, agent] = job
        found += state.head[b, agent] >= 0
    return found


@kept
def prepare(weeks: Weeks, state: State, mask: BoolArray, rows: FloatArray) -> int:
    """Advance each week to the next step in which an agent has a choice; return how many weeks have one.

    `mask` (B, S, S + 1) marks the legal actions of each agent, of which the last is to wait; `rows`
    (B, S, S, features) are the features of each legal start.
    """
    active = 0
    for b in range(len(state.tally)):
        found = _set_heads(weeks, state, b, mask)
        while found == 0 and not _over(weeks, state, b):
            _keep_waiting(weeks, state, b)
            _tick(weeks, state, b)
            found = _set_heads(weeks, state, b, mask)
        active += found > 0
        jobs, seen, scratch, now = _jobs(weeks, b), _seen(weeks, state, b), _scratch(state, b), state.tally[b, NOW]
        crowding = crowding_of(jobs, seen, state.waiting[b], state.tally[b, WAITING])
        for agent in range(state.head.shape[1]):
            job = state.head[b, agent]
            if job < 0:
                continue
            features_in(rows[b, agent], jobs, seen, now, job, crowding, scratch)
    return active


@kernel
def realised_usd(weeks: Weeks, b: int, job: int, start: int, site: int) -> float:
    """Return what a job's start adds to the utility, with its real run time and cost, compared with never running."""
    end = start + weeks.run_steps[b, job]
    usd: float = weeks.paid[b, site, start] - weeks.paid[b, site, end]
    usd = weeks.jobs.gpus[b, job] * (usd + weeks.worth_usd[b] * weeks.run_steps[b, job])
    usd -= weeks.jobs.move_usd[b, job, site]
    return usd + weeks.miss_usd[b] if end <= weeks.jobs.due[b, job] else usd


@kept
def act(weeks: Weeks, state: State, actions: IntArray, earned: FloatArray) -> None:
    """Carry out one action (B, S) of each agent for its head job, and write what each start earns (B, S) in USD.

    Agents act in turn, beginning with another agent in every step. If others have taken the room for a start, it is
    refused, and the agent decides about the job again.
    """
    sites = state.head.shape[1]
    for b in range(len(state.tally)):
        now = state.tally[b, NOW]
        for turn in range(sites):
            agent = (turn + now) % sites
            job, site = state.head[b, agent], actions[b, agent]
            earned[b, agent] = 0.0
            if job < 0:
                continue
            if site == sites:
                state.decided[b, job] = now
            elif state.free[b, site] >= weeks.jobs.gpus[b, job]:
                state.free[b, site] -= weeks.jobs.gpus[b, job]
                _start(state, b, job, site)
                earned[b, agent] = realised_usd(weeks, b, job, now, site)
