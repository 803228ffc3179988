"""Plan and hold calls: which jobs run now on what, and until when jobs wait for cleaner or cheaper energy.

The decisions are `scheduler_core.planning`; this module converts rows and gives reasons.
"""

from collections import Counter
from collections.abc import Sequence
from datetime import UTC, datetime
from functools import partial

import numpy as np

from modelserve.calls.context import Answered, RequestContext, Values, written
from modelserve.contract.plans import HoldBody, PlanBody, PlanJob
from modelserve.contract.requests import JobRow
from modelserve.errors import BadRequest
from scheduler_core.planning.carbon import Round, allocate, carbon_round
from scheduler_core.planning.cost import POSTPONED, Decision, Nodes, NodeType, Problem, WaitingJobs
from scheduler_core.planning.elastic import ElasticJobs, Period
from scheduler_core.planning.hourly import HOUR_S, HourlySeries
from scheduler_core.planning.lookahead import look_ahead
from scheduler_core.planning.release import foreseen, released_s
from scheduler_core.types import BoolArray, FloatArray, IntArray

__all__ = ["hold_rows", "holds", "plan_rows", "plans"]


def plans(context: RequestContext, body: PlanBody) -> Answered:
    """Return the response to a plan call."""
    return _answered("plan", context, body.jobs, plan_rows(body, _moment(body, context)), "plans")


def holds(context: RequestContext, body: HoldBody) -> Answered:
    """Return the response to a hold call."""
    return _answered("hold", context, body.jobs, {"holds": hold_rows(body, _moment(body, context))}, "holds")


def _moment(body: PlanBody | HoldBody, context: RequestContext) -> float:
    """Return the time of a decision (Unix time): that in the call, or without one the time of the call's arrival."""
    return context.now if body.now_ts is None else body.now_ts.timestamp()


def _answered(kind: str, context: RequestContext, jobs: Sequence[JobRow], found: Values, name: str) -> Answered:
    """Add the mode of each job, which says whether to apply the decision, and count the reasons."""
    rows = [{**row, "mode": context.mode(job)} for row, job in zip(found[name], jobs, strict=True)]
    return Answered(
        body=written({"answer_id": context.answer_id, **found, name: rows}),
        counts=Counter((kind, row["reason"]) for row in rows),
    )


def plan_rows(body: PlanBody, now: float) -> Values:
    """Return a plan at `now` (Unix time) as the fields of `PlanAnswer`, without modes and the id of the answer."""
    nodes = [name for group in body.nodes for name in group.names]
    return _by_carbon(body, nodes, now) if body.objective == "carbon" else _by_cost(body, nodes, now)


def _by_carbon(body: PlanBody, nodes: list[str], now: float) -> Values:
    jobs, rows = _elastic(body), np.arange(len(body.jobs))
    running = np.array([row.running_gpus > 0 for row in body.jobs])
    free = np.repeat([group.gpus for group in body.nodes], [group.count for group in body.nodes])
    budget_g = body.budget_g or 0.0
    parts: list[tuple[IntArray, Round]] = []
    groups = [rows] if body.preempt else [rows[running], rows[~running]]
    for part in groups:
        found = _round(body, jobs.rows(part), [body.jobs[row] for row in part], nodes, now, free, budget_g)
        free, budget_g = free - found.placed.sum(axis=0), max(budget_g - float(found.planned_g.sum()), 0.0)
        parts.append((part, found))
    answers: list[Values] = [{}] * len(rows)
    fewest, left = jobs.allowed.argmax(axis=1).tolist(), int(free.sum())
    for part, found in parts:
        for at, row in enumerate(part.tolist()):
            answers[row] = _planned(body, row, found, at, nodes, fewest=fewest[row], free=left)
    left_s = np.concatenate([found.left_s for _, found in parts])
    return {
        "again_ts": utc_text(now + float(left_s.min(initial=body.period_s))),
        "planned_g": float(sum(found.planned_g.sum() for _, found in parts)),
        "notes": [note for _, found in parts for note in found.plan.notes],
        "plans": answers,
    }


def _round(
    body: PlanBody,
    jobs: ElasticJobs,
    rows: Sequence[PlanJob],
    nodes: list[str],
    now: float,
    free: IntArray,
    budget_g: float,
) -> Round:
    """Run a round for some of the jobs, with the free GPUs of every node and the grams left of the budget."""
    places = np.zeros((len(rows), len(nodes)), np.int64)
    for at, row in enumerate(rows):
        if row.node is not None:
            places[at, nodes.index(row.node)] = row.running_gpus
    submitted = (now if row.submit_ts is None else row.submit_ts.timestamp() for row in rows)
    return carbon_round(
        jobs.after(
            np.array([row.done_frac * row.run_s for row in rows]),
            np.array([max(now - each, 0.0) for each in submitted]),
        ),
        Period(
            intensity_g_per_kwh=body.g_per_kwh or 0.0,
            budget_g=budget_g,
            period_s=body.period_s,
            pue=body.pue,
            rule=body.budget,
        ),
        free,
        places=places,
        planner=partial(allocate, price_s_per_kwh=body.price_s_per_kwh if body.planner == "priced" else 0.0),
    )


def _elastic(body: PlanBody) -> ElasticJobs:
    """Return the jobs of a call; their work is in seconds on the requested GPUs at the highest clock."""
    watts = body.nodes[0].gpu_full_w
    most = max(max((row.gpus, *row.speedup)) for row in body.jobs)
    speeds = np.full((len(body.jobs), most + 1), np.nan)
    speeds[:, 0] = 0.0
    for at, row in enumerate(body.jobs):
        scale = {**row.speedup, row.gpus: 1.0}
        speeds[at, list(scale)] = list(scale.values())
        speeds[at] *= row.speed_on.get(body.nodes[0].gpu_type, 1.0)
    clocks = [(clock.mhz, clock.speed, clock.power) for clock in body.clocks] or [(1.0, 1.0, 1.0)]
    mhz, perf, power = (np.array(each) for each in zip(*clocks, strict=True))
    return ElasticJobs(
        steps_left=np.array([row.run_s for row in body.jobs]),
        steps_per_s=speeds,
        perf=np.tile(perf, (len(body.jobs), 1)),
        watts=np.outer([row.gpu_watts or watts for row in body.jobs], power),
        mhz=mhz,
        age_s=np.zeros(len(body.jobs)),
        rigid_gpus=np.array([0 if row.speedup else row.gpus for row in body.jobs], np.int64),
    )


def _planned(body: PlanBody, row: int, found: Round, at: int, nodes: list[str], *, fewest: int, free: int) -> Values:
    """Return the answer about the job in row `at` of its round; it needs `fewest` GPUs or more, `free` are left."""
    job, plan = body.jobs[row], found.plan
    gpus, grams = int(plan.gpus[at]), float(found.planned_g[at])
    reason, note = "runs", f"{grams:.3g} g of the budget"
    if not gpus and fewest > free:
        whole = sum(group.gpus * group.count for group in body.nodes)
        reason, note = (
            "no_gpus",
            f"needs {fewest} GPUs, " + (f"all nodes together have {whole}" if fewest > whole else f"{free} are left"),
        )
    elif not gpus:
        reason = "budget"
        note = f"its least plan does not fit into what the budget of {body.budget_g:g} g has left"
    elif job.running_gpus not in (0, gpus):
        note = f"from {job.running_gpus} GPUs; {note}"
    placed = found.placed[at]
    return {
        "job_id": job.job_id,
        "gpus": gpus,
        "mhz": body.clocks[plan.step[at]].mhz if body.clocks and gpus else None,
        "nodes": {nodes[node]: int(placed[node]) for node in np.flatnonzero(placed)},
        "left_s": float(found.left_s[at]) if gpus else None,
        "grams": grams,
        "reason": reason,
        "note": note,
    }


def _by_cost(body: PlanBody, nodes: list[str], now: float) -> Values:
    run_s, due_s = _run_s(body), np.array([row.due_ts.timestamp() if row.due_ts else np.inf for row in body.jobs])
    types = tuple(
        NodeType(
            name=group.name,
            gpu_type=group.gpu_type,
            gpus=group.gpus,
            idle_w=group.rest_idle_w + group.gpus * group.gpu_idle_w,
            gpu_active_w=max(group.gpu_full_w - group.gpu_idle_w, 0.0),
        )
        for group in body.nodes
    )
    weights = [row.weight_usd_per_h / HOUR_S for row in body.jobs]
    problem = Problem(
        jobs=WaitingJobs(due_s=due_s, weight_usd_per_s=np.array(weights), run_s=run_s),
        nodes=Nodes(types=types, type_of=np.repeat(np.arange(len(types)), [group.count for group in body.nodes])),
        now_s=now,
        usd_per_kwh=body.usd_per_kwh or 0.0,
        pue=body.pue,
        period_s=body.period_s,
        later_usd_per_kwh=body.later_usd_per_kwh,
        restart_s=body.restart_s,
        current=Decision(
            node=np.array([POSTPONED if row.node is None else nodes.index(row.node) for row in body.jobs], np.int64),
            gpus=np.array([0 if row.node is None else row.running_gpus for row in body.jobs], np.int64),
        ),
    )
    decision = look_ahead(problem, np.random.default_rng(0))
    kinds = problem.nodes.type_of
    answers, least_s = [], body.period_s
    for at, row in enumerate(body.jobs):
        node, gpus = int(decision.node[at]), int(decision.gpus[at])
        left_s = float(run_s[at, kinds[node], gpus]) if gpus else None
        late_s = max(now + (left_s or 0.0) - due_s[at], 0.0)
        least_s = min(least_s, left_s or least_s)
        answers.append(
            {
                "job_id": row.job_id,
                "gpus": gpus,
                "mhz": None,
                "nodes": {nodes[node]: gpus} if gpus else {},
                "left_s": left_s,
                "grams": None,
                "reason": "postponed" if not gpus else "late" if late_s > 0.0 else "runs",
                "note": _cost_note(row, gpus, late_s),
            }
        )
    return {"again_ts": utc_text(now + least_s), "planned_g": None, "notes": [], "plans": answers}


def _run_s(body: PlanBody) -> FloatArray:
    """Return the remaining run time by job, node group and GPU count (J, K, 1 + most GPUs); NaN where impossible."""
    most = max(group.gpus for group in body.nodes)
    run_s = np.full((len(body.jobs), len(body.nodes), most + 1), np.nan)
    for at, row in enumerate(body.jobs):
        for kind, group in enumerate(body.nodes):
            for count, speed in {**row.speedup, row.gpus: 1.0}.items():
                if count <= group.gpus:
                    whole_s = row.run_s / (speed * row.speed_on.get(group.gpu_type, 1.0))
                    run_s[at, kind, count] = whole_s * (1.0 - row.done_frac)
        if np.isnan(run_s[at]).all():
            raise BadRequest(
                f"jobs.{at}: found {row.gpus} GPUs, expected at most {most}, the GPUs of a node; the objective cost "
                "places a job on one node"
            )
    return run_s


def _cost_note(row: PlanJob, gpus: int, late_s: float) -> str:
    due = f"due {utc_text(row.due_ts.timestamp())}" if row.due_ts else "no due date"
    if not gpus:
        return f"{due}; other jobs cost more to delay"
    if row.due_ts is None:
        return due
    return f"{due}; ends {late_s:.0f} s late by this plan" if late_s else f"{due}; ends in time by this plan"


def hold_rows(body: HoldBody, now: float) -> list[Values]:
    """Return until when to hold each job at `now` (Unix time), as the fields of `Held` without modes."""
    unit = "g/kWh" if body.by == "carbon" else "USD/kWh"
    known = HourlySeries(start_s=body.hours.start_ts.timestamp(), values=np.array(body.hours.values), unit=unit)
    if not known.start_s <= now < known.until_s:
        raise BadRequest(f"hours: found none of {utc_text(now)}, expected the value of the current hour among them")
    run_s, slack_s = (np.array([getattr(row, name) for row in body.jobs]) for name in ("run_s", "slack_s"))
    series = foreseen(known, now + float((run_s + slack_s).max()) + 2 * HOUR_S)
    until_s = released_s(now, slack_s, run_s, series)
    starts = np.full(len(run_s), now), until_s
    now_mean, then_mean = (series.integral(at, at + run_s) / (run_s / HOUR_S) for at in starts)
    held: BoolArray = until_s > now
    rows = []
    for at, row in enumerate(body.jobs):
        mean, then = float(now_mean[at]), float(then_mean[at])
        reason = "better_hour" if held[at] else "now_is_best" if row.slack_s >= HOUR_S else "no_slack"
        note = f"{mean:.4g} {unit} now" + (f", {then:.4g} from {utc_text(float(until_s[at]))} on" if held[at] else "")
        rows.append(
            {
                "job_id": row.job_id,
                "until_ts": utc_text(float(until_s[at])) if held[at] else None,
                "mean_now": mean,
                "mean_then": then,
                "reason": reason,
                "note": note,
            }
        )
    return rows


def utc_text(ts: float) -> str:
    """Return a moment (Unix time) as ISO 8601 in UTC."""
    return datetime.fromtimestamp(ts, UTC).isoformat().replace("+00:00", "Z")
