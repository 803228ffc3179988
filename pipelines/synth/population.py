"""Draw users, groups (recurring templates) and their jobs with submission times and requests, as arrays."""

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
from scipy.special import ndtri

from pipelines.synth.calibration import Calibration
from pipelines.synth.random_numbers import Curve, Floats, Ints, Noise

_LARGEST_SHARE_OF_A_CLASS = 0.1
"""Maximum share of a class's jobs in one group, so that no single group dominates a class."""

_CPU_STEPS = np.array([20, 50, 100, 200, 400, 600, 800, 1000, 1200, 1800, 2400, 3200, 4800, 6400], dtype=np.float64)
_GPU_STEPS = np.array([5, 10, 20, 25, 50, 100], dtype=np.float64)
_MULTI_GPU_TYPES = ("MISC", "V100", "V100M32")
"""GPU types whose machines have more than two GPUs."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Groups:
    """One entry per group: size in jobs, class (an index), user, request per instance, gang size and GPU type.

    `plan_gpu` is NaN and `gpu_type` "" if the main task has no GPUs.
    """

    size: Ints
    klass: Ints
    user: Ints
    plan_cpu: Floats
    plan_mem: Floats
    plan_gpu: Floats
    gpu_type: npt.NDArray[np.str_]
    gang: Ints
    side: npt.NDArray[np.bool_]
    """Whether the group has each side role of its class; shape (groups, maximum number of side roles)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Jobs:
    """One entry per job, in order of submission: group, position in the group, submission time and request.

    Some requests differ from the group's request (retuning).
    """

    group: Ints
    turn: Floats
    """Position of the job in its group, from 0 (first) to 1 (last)."""
    submit_s: Ints
    plan_cpu: Floats
    plan_gpu: Floats


def draw_groups(calibration: Calibration, noise: Noise, tasks: int, tagged_share: float | None) -> Groups:
    """Draw groups whose jobs have exactly `tasks` tasks in total."""
    shares = calibration.shares(tagged_share)
    tasks_per_job = 1.0 + float(shares @ [sum(p for _, p in c.side) for c in calibration.classes])
    jobs = tasks / tasks_per_job
    size = _group_sizes(calibration, noise, jobs)
    klass = _classes(size, shares * jobs)
    side = _side_roles(calibration, noise, klass)
    size, klass, side = _fitted(size, klass, side, tasks)
    request = _drawn(
        calibration, noise, klass, size, "request", [[r[3] for r in c.requests] for c in calibration.classes]
    )
    most = max(len(c.requests) for c in calibration.classes)
    every = [[c.requests[min(r, len(c.requests) - 1)][:3] for r in range(most)] for c in calibration.classes]
    plans = np.array(every)[klass, request]
    gang = _drawn(calibration, noise, klass, size, "gang", [[n[1] for n in c.instances] for c in calibration.classes])
    gangs = _padded([[n[0] for n in c.instances] for c in calibration.classes])
    return Groups(
        size=size,
        klass=klass,
        user=_users(calibration, noise, size, tasks),
        plan_cpu=plans[:, 0],
        plan_mem=plans[:, 1],
        plan_gpu=np.where(plans[:, 2] > 0, plans[:, 2], np.nan),
        gpu_type=_gpu_types(calibration, noise, klass, np.where(plans[:, 2] > 0, plans[:, 2], np.nan)),
        gang=gangs[klass, gang].astype(np.int64),
        side=side,
    )


def draw_jobs(calibration: Calibration, noise: Noise, groups: Groups) -> Jobs:
    """Draw the jobs' submission times; change the requests of some jobs, as users who retune them do."""
    index = np.repeat(np.arange(len(groups.size)), groups.size)
    first = np.cumsum(groups.size) - groups.size
    turn = np.arange(len(index)) - first[index]
    instant = _submit_instants(calibration, noise, groups, index)
    order = np.lexsort((np.arange(len(index)), instant))
    job = np.arange(len(index))
    # Number the jobs of a group in order of submission.
    by_group = np.lexsort((instant, index))
    turns = np.empty(len(index))
    turns[by_group] = turn / np.maximum(groups.size[index] - 1, 1)
    submit_s = calibration.trace.start_s + np.floor(_clock(calibration, noise, instant[order])).astype(np.int64)
    group = index[order]
    share = calibration.run_time.retuned_share
    return Jobs(
        group=group,
        turn=turns[order],
        submit_s=submit_s,
        plan_cpu=_step(_CPU_STEPS, groups.plan_cpu[group], noise.uniform("retune cpu", job), share),
        plan_gpu=_step(_GPU_STEPS, groups.plan_gpu[group], noise.uniform("retune gpu", job), share / 2),
    )


def _group_sizes(calibration: Calibration, noise: Noise, jobs: float) -> Ints:
    law = calibration.groups
    cap = max(law.smallest_cap, int(law.largest * jobs / calibration.trace.jobs))
    needed = int(1.1 * jobs) + 10
    drawn = np.floor(noise.uniform("group size", np.arange(needed)) ** (-1.0 / law.exponent))
    size = np.minimum(drawn, cap).astype(np.int64)
    return np.asarray(size[: int(np.searchsorted(np.cumsum(size), 1.1 * jobs)) + 1], dtype=np.int64)


def _classes(size: Ints, quotas: Floats) -> Ints:
    """Assign groups to classes, rarest class first, until each has its quota of jobs; the last class gets the rest."""
    order = np.argsort(quotas, kind="stable")
    klass = np.full(len(size), order[-1])
    free = np.ones(len(size), dtype=bool)
    for each in order[:-1]:
        small = np.flatnonzero(free & (size <= max(1.0, _LARGEST_SHARE_OF_A_CLASS * quotas[each])))
        taken = small[: int(np.searchsorted(np.cumsum(size[small]), quotas[each]))]
        klass[taken], free[taken] = each, False
    return klass


def _side_roles(calibration: Calibration, noise: Noise, klass: Ints) -> npt.NDArray[np.bool_]:
    odds = _padded([[p for _, p in c.side] for c in calibration.classes])
    index = np.arange(len(klass))
    return np.stack([noise.uniform(f"side role {k}", index) < odds[klass, k] for k in range(odds.shape[1])], axis=1)


def _fitted(
    size: Ints, klass: Ints, side: npt.NDArray[np.bool_], tasks: int
) -> tuple[Ints, Ints, npt.NDArray[np.bool_]]:
    """Drop groups and jobs beyond `tasks` tasks; then add jobs to groups without side roles to reach that number."""
    tasks_per_job = 1 + side.sum(axis=1)
    made = np.cumsum(size * tasks_per_job)
    kept = np.minimum(size, np.maximum(tasks - made + size * tasks_per_job, 0) // tasks_per_job)
    missing = tasks - int((kept * tasks_per_job).sum())
    plain = np.flatnonzero(~side.any(axis=1))[:missing]
    kept[plain] += 1
    return kept[kept > 0], klass[kept > 0], side[kept > 0]


def _users(calibration: Calibration, noise: Noise, size: Ints, tasks: int) -> Ints:
    """Draw each group's user in proportion to activity, among users with enough tasks for the group's size."""
    law = calibration.users
    curve = Curve.of(law.at, law.tasks)
    grid = (np.arange(2000) + 0.5) / 2000
    mean = float(curve.at(ndtri(grid)).mean())
    scale = tasks / calibration.trace.tasks
    count = max(5, round(calibration.trace.tasks / mean * scale**law.count_exponent))
    activity = np.sort(curve.at(ndtri((np.arange(count) + 0.5) / count)))[::-1]
    activity = activity / activity.sum()
    able = np.maximum(1, np.searchsorted(-activity * size.sum(), -size.astype(np.float64)))
    cumulative = np.cumsum(activity)
    drawn = noise.uniform("user", np.arange(len(size))) * cumulative[able - 1]
    return np.asarray(np.minimum(np.searchsorted(cumulative, drawn), count - 1), dtype=np.int64)


def _padded(rows: list[list[float]]) -> Floats:
    width = max(1, max(len(row) for row in rows))
    return np.array([row + [0.0] * (width - len(row)) for row in rows])


def _drawn(
    calibration: Calibration, noise: Noise, klass: Ints, size: Ints, stream: str, weights: list[list[float]]
) -> Ints:
    """Draw an index into its class's `weights` for each group, so that the jobs of each class match the weights."""
    position = np.zeros(len(klass), dtype=np.int64)
    for each in range(len(calibration.classes)):
        mine = np.flatnonzero(klass == each)
        mine = mine[np.argsort(noise.uniform(f"{stream} order", mine), kind="stable")]
        quotas = np.asarray(weights[each]) / sum(weights[each]) * size[mine].sum()
        # Round quotas at random, so that rare values also occur sometimes in a small trace.
        rounding = noise.uniform(f"{stream} rounding", 100 * each + np.arange(len(quotas)))
        position[mine] = _classes(size[mine], np.floor(quotas + rounding))
    return position


def _gpu_types(calibration: Calibration, noise: Noise, klass: Ints, plan_gpu: Floats) -> npt.NDArray[np.str_]:
    """Draw GPU types; instances with more than two GPUs get a type of `_MULTI_GPU_TYPES`."""
    types = np.zeros(len(klass), dtype="<U8")
    for each, described in enumerate(calibration.classes):
        names = np.array(list(described.gpu_types))
        weights = np.array(list(described.gpu_types.values()))
        for fits, asks in ((np.ones(len(names)), plan_gpu <= 200), (np.isin(names, _MULTI_GPU_TYPES), plan_gpu > 200)):
            mine = np.flatnonzero((klass == each) & asks)
            if len(mine):
                types[mine] = names[noise.choice("gpu type", mine, weights * fits)]
    return types


def _submit_instants(calibration: Calibration, noise: Noise, groups: Groups, index: Ints) -> Floats:
    """Return each job's position in the order of all submissions, as a quantile from 0 to 1.

    A group's jobs are spread around a centre. Values outside 0 to 1 are reflected, so that all together stay uniform.
    """
    law = calibration.arrivals
    group = np.arange(len(groups.size))
    batch = noise.uniform("batch", group) < law.batch_share
    low = np.where(batch, law.batch_days[0], law.span_days[0])
    high = np.where(batch, law.batch_days[1], law.span_days[1])
    span_days = np.maximum(low * (high / low) ** noise.uniform("span", group), groups.size / law.jobs_per_day)
    spread = np.minimum(span_days / calibration.trace.days, 1.0)[index] * (
        noise.uniform("instant", np.arange(len(index))) - 0.5
    )
    place = np.abs(noise.uniform("centre", group)[index] + spread)
    return np.asarray(np.where(place > 1.0, 2.0 - place, place), dtype=np.float64)


def _clock(calibration: Calibration, noise: Noise, instant: Floats) -> Floats:
    """Convert submission quantiles to seconds since the start, by the cumulative arrival rate over minutes."""
    law = calibration.arrivals
    minute = np.arange(calibration.trace.days * 1440)
    hour, day = minute // 60, minute // 1440
    busy = np.asarray(law.hours)[hour % 24] * np.asarray(law.weekdays)[day % 7]
    busy = busy * np.exp(law.day_sd * noise.normal("day", day) + law.hour_sd * noise.normal("hour", hour))
    busy = busy * (-np.log(noise.uniform("minute", minute))) ** law.minute_power
    busy = np.where(noise.uniform("lull", hour // law.lull_hours) < law.lull_share, busy * 1e-3, busy)
    cumulative = np.r_[0.0, np.cumsum(busy)]
    seconds = 60.0 * np.arange(len(cumulative))
    return np.asarray(np.interp(instant, cumulative / cumulative[-1], seconds), dtype=np.float64)


def _step(ladder: Floats, request: Floats, drawn: Floats, share: float) -> Floats:
    """Change a `share` of the requests by two steps on a ladder of usual values, half of them down and half up.

    Requests that are not on the ladder are not changed.
    """
    place = np.searchsorted(ladder, request)
    on = ladder[np.minimum(place, len(ladder) - 1)] == request
    step = np.where(drawn < share / 2, -2, np.where(drawn < share, 2, 0))
    moved = ladder[np.clip(place + step, 0, len(ladder) - 1)]
    return np.where(on, moved, request)
