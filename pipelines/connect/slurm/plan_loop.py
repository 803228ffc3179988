"""Keep the jobs of a Slurm cluster within a carbon budget: hold, release, suspend and resume them, period by period.

Commands are `pipelines.connect.actuators`; the caller brings the decision.
"""

import time
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from typing import Any, Final

from modelserve.contract.plans import PlanBody
from pipelines.connect.actuators import carry_out, commands_of
from pipelines.connect.slurm.commands import states_of
from scheduler_core.planning.hourly import JOULES_PER_KWH, HourlySeries

__all__ = ["run_loop"]

POLL_S: Final = 0.25
"""Seconds between looks at the queue; longer if a plan or Slurm's commands take longer."""

MOST_DONE: Final = 0.99
"""Largest fraction of a running job that counts as done."""

Row = dict[str, object]
Decide = Callable[[PlanBody, float], Mapping[str, Any]]  # Any: the fields of `PlanAnswer`


def run_loop(
    body: PlanBody,
    series: HourlySeries,
    now: float,
    *,
    decide: Decide,
    rounds: int,
    speed: float,
    say: Callable[[str], None],
) -> list[Row]:
    """Plan the jobs of `body` from `now` (Unix time of the grid) on, and carry the plans out; return a row per period.

    A plan is made for each period, and again when a job starts, ends or runs longer than predicted. A job counts as
    emitting from the last look at the queue before its run to the first look after it (an upper bound). Running jobs
    are suspended only if the budget does not suffice for them. The loop ends after `rounds` periods, or when no job is
    left in the queue. `speed` is seconds of the grid per second. `decide` returns the plan for a call at a time.
    """
    loop = _Loop(body, series, now, speed, decide)
    rows: list[Row] = []
    while True:
        changed, at = loop.look()
        if loop.ends <= at or not loop.states:
            rows.append(loop.row())
            if not loop.states or at >= now + rounds * body.period_s:
                return rows
            loop.open_period(at)
            changed = True
        if changed or at >= loop.again:
            failed = carry_out(loop.commands(at), say=say)
            if failed:
                say(f"{failed} commands failed; the next round tries again")
        time.sleep(POLL_S)


class _Loop:
    """The state of the loop: the clock of the grid, the queue as last seen, progress of the jobs, and the account.

    The account is of one period of the budget: its begin and end, what was emitted so far, the limit, and who ran.
    """

    def __init__(self, body: PlanBody, series: HourlySeries, now: float, speed: float, decide: Decide) -> None:
        self.body, self.series, self.speed, self.decide = body, series, speed, decide
        self.begun, self.begun_s, self.at = now, time.monotonic(), now
        self.states: dict[str, str] = {}
        self.running: set[str] = set()
        kind = body.nodes[0].gpu_type
        self.whole_s = {row.job_id: row.run_s / row.speed_on.get(kind, 1.0) for row in body.jobs}
        self.ran_s = {row.job_id: row.done_frac * self.whole_s[row.job_id] for row in body.jobs}
        self.sent: dict[str, tuple[str, ...]] = {}
        self.again = now
        self.watts = {row.job_id: row.gpus * (row.gpu_watts or body.nodes[0].gpu_full_w) for row in body.jobs}
        self._open(now, body.budget_g or 0.0)

    def _open(self, at: float, budget_g: float) -> None:
        """Start the account of the period that contains `at`."""
        self.begins = self.begun + (at - self.begun) // self.body.period_s * self.body.period_s
        self.ends = self.begins + self.body.period_s
        self.g_per_kwh, self.budget_g, self.spent_g = self.series.at(at), budget_g, 0.0
        self.ran: set[str] = set()

    def row(self) -> Row:
        """Return the period as a row for the user."""
        return {
            "period": datetime.fromtimestamp(self.begins, UTC).isoformat(timespec="seconds"),
            "g_per_kwh": self.g_per_kwh,
            "budget_g": self.budget_g,
            "spent_g": self.spent_g,
            "jobs_ran": len(self.ran),
            "jobs_ended": len(self.body.jobs) - len(self.states),
            "jobs_waiting": len(self.states) - len(self.running),
        }

    def look(self) -> tuple[bool, float]:
        """Look at the queue, count what ran since the last look; return if a state changed, and the grid's time."""
        states = states_of([row.job_id for row in self.body.jobs])
        at = self.begun + (time.monotonic() - self.begun_s) * self.speed
        running = {job for job, state in states.items() if state == "RUNNING"}
        kwh_per_w = (at - self.at) * self.body.pue / JOULES_PER_KWH
        for job in running | self.running:
            self.ran_s[job] += at - self.at
            self.spent_g += self.watts[job] * kwh_per_w * self.g_per_kwh
            self.ran.add(job)
        changed = states != self.states
        self.states, self.running, self.at = states, running, at
        return changed, at

    def open_period(self, at: float) -> None:
        """Continue with the period that contains `at`; a budget until the jobs end stays the same."""
        carried = self.body.budget == "to-completion"
        self._open(at, max(self.budget_g - self.spent_g, 0.0) if carried else self.body.budget_g or 0.0)

    def commands(self, at: float) -> list[tuple[str, ...]]:
        """Plan the jobs in the queue, and return the commands that were not sent before."""
        jobs = [
            row.model_copy(
                update={
                    "done_frac": min(self.ran_s[row.job_id] / self.whole_s[row.job_id], MOST_DONE),
                    "running_gpus": row.gpus if row.job_id in self.running else 0,
                    "speedup": {},  # Slurm changes no running job's GPUs
                }
            )
            for row in self.body.jobs
            if row.job_id in self.states
        ]
        if not jobs:
            return []
        update = {
            "jobs": tuple(jobs),
            "clocks": (),  # nor its clock
            "budget_g": max(self.budget_g - self.spent_g, 0.0),
            "g_per_kwh": self.g_per_kwh,
            "period_s": max(self.ends - at, 1.0),
            "preempt": False,
        }
        plan = self.decide(self.body.model_copy(update=update), at)
        self.again = datetime.fromisoformat(plan["again_ts"]).timestamp()
        suspended = {job for job, state in self.states.items() if state == "SUSPENDED"}
        made = commands_of("slurm", plan["plans"], self.running, suspended)
        fresh = [command for command in made if self.sent.get(command[-1]) != command]
        self.sent |= {command[-1]: command for command in fresh}
        return fresh
