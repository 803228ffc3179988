"""Draw the tasks of the jobs: request, status, queueing delay and run time, which follows the published curves."""

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from pipelines.synth.calibration import FAILED, Calibration
from pipelines.synth.population import Groups, Jobs
from pipelines.synth.random_numbers import Floats, Ints, Noise, normal_ranks

TERMINATED, FAILING, RUNNING, WAITING = range(4)
STATUS_NAMES = np.array(["Terminated", "Failed", "Running", "Waiting"])
_SECONDS_PER_WEEK = 604_800
_MOST_LAG_S = 2
_MOST_WAIT_S = 7 * 86_400.0
_LARGE_GANG = 100
"""Minimum number of instances of gangs that may be enlarged, because the calibration truncates larger sizes."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Runs:
    """One entry per job: status, queueing delay, normal score of the run time, run time."""

    status: Ints
    wait_s: Ints
    score: Floats
    run_s: Ints


@dataclass(frozen=True, slots=True, kw_only=True)
class Tasks:
    """One entry per task, in order of jobs, main task first. `plan_gpu` is NaN and `gpu_type` "" without GPUs."""

    job: Ints
    role: npt.NDArray[np.str_]
    side: npt.NDArray[np.bool_]
    instances: Ints
    plan_cpu: Floats
    plan_mem: Floats
    plan_gpu: Floats
    gpu_type: npt.NDArray[np.str_]
    status: Ints
    start_s: Ints
    wait_s: Ints
    run_s: Ints
    first_instance: Ints
    """Index of the task's first instance in the whole trace."""


def measured_share(calibration: Calibration, instances: Ints) -> Floats:
    """Return the share of a gang's workers that have sensor rows."""
    use = calibration.use
    return np.asarray(np.minimum(1.0, (use.measured_gang / instances) ** use.measured_power), dtype=np.float64)


def draw_runs(calibration: Calibration, noise: Noise, groups: Groups, jobs: Jobs, need: Floats) -> Runs:
    """Draw status, queueing delay and run time of every job.

    `need` is the CPU and GPU in percent that an instance of each group needs, shape (groups, 2).
    """
    failed = _failing(calibration, noise, groups, jobs)
    latent = _latent(calibration, noise, groups, jobs, need)
    names = list(calibration.run_time_curves)
    of_class = np.array([names.index(c.run_time_curve) for c in calibration.classes])
    stratum = np.where(failed, names.index(FAILED), of_class[groups.klass[jobs.group]])
    # The published curves weight a tagged job by its tasks x measured instances, an untagged job by its tasks.
    gang = groups.gang[jobs.group]
    tagged = np.array([bool(c.tag) for c in calibration.classes])[groups.klass[jobs.group]]
    rows = (1 + groups.side.sum(axis=1))[jobs.group] * gang * measured_share(calibration, gang)
    score = normal_ranks(latent, stratum, np.where(tagged & ~failed, rows, 1.0))
    run = np.empty(len(score))
    for each, name in enumerate(names):
        mine = stratum == each
        run[mine] = calibration.run_time_curves[name].at(score[mine])
    law = calibration.run_time
    run_s = np.rint(np.clip(run, law.least_s, law.most_s)).astype(np.int64)
    wait_s = _waits(calibration, noise, groups.gpu_type[jobs.group])
    status = _outcomes(calibration, noise, jobs, failed, wait_s, run_s)
    return Runs(status=status, wait_s=wait_s, score=score, run_s=run_s)


def draw_tasks(
    calibration: Calibration, noise: Noise, groups: Groups, jobs: Jobs, runs: Runs, instances_started: int | None
) -> Tasks:
    """Draw every job's tasks: the main task, and a task for each side role of its group."""
    present = np.column_stack([np.ones(len(groups.size), dtype=bool), groups.side])[jobs.group]
    job, slot = np.nonzero(present)
    group = jobs.group[job]
    width = groups.side.shape[1] + 1
    roles = np.array(
        [[c.role, *(name for name, _ in c.side), *[""] * (width - 1 - len(c.side))] for c in calibration.classes]
    )
    role = roles[groups.klass[group], slot]
    side = slot > 0
    gpu = ~side | (role == "evaluator")
    index = np.arange(len(job))
    cpu_only, sizes = np.array(calibration.side_tasks.requests), np.array(calibration.side_tasks.instances)
    # A side task's request and size are drawn per group, so that they are equal in all jobs of the group.
    asked = cpu_only[noise.choice("side request", group, cpu_only[:, 2])]
    beside = sizes[noise.choice("side size", group, sizes[:, 1]), 0].astype(np.int64)
    instances = np.where(side, np.where(gpu, 1, beside), groups.gang[group])
    status = _task_status(calibration, noise, runs.status[job], side, index)
    if instances_started is not None:
        instances = _filled(instances, status != WAITING, instances_started)
    gpu_type = np.where(gpu, groups.gpu_type[group], "")
    lag_s = np.where(side, noise.below("side lag", index, _MOST_LAG_S + 1), 0)
    return Tasks(
        job=job,
        role=role,
        side=side,
        instances=instances,
        plan_cpu=np.where(gpu, jobs.plan_cpu[job], asked[:, 0]),
        plan_mem=np.where(gpu, groups.plan_mem[group], asked[:, 1]),
        plan_gpu=np.where(gpu, jobs.plan_gpu[job], np.nan),
        gpu_type=gpu_type,
        status=status,
        start_s=jobs.submit_s[job] + lag_s,
        wait_s=runs.wait_s[job],
        run_s=runs.run_s[job],
        first_instance=np.cumsum(instances) - instances,
    )


def _filled(instances: Ints, started: npt.NDArray[np.bool_], wanted: int) -> Ints:
    """Enlarge the largest gangs in proportion to their size, so that `wanted` instances start in total."""
    large = instances >= _LARGE_GANG
    held, lacking = int(instances[started & large].sum()), wanted - int(instances[started].sum())
    if lacking <= 0 or not held:
        return instances
    return np.where(large, np.rint(instances * (1 + lacking / held)).astype(np.int64), instances)


def _failing(calibration: Calibration, noise: Noise, groups: Groups, jobs: Jobs) -> npt.NDArray[np.bool_]:
    law = calibration.outcomes
    group = np.arange(len(groups.size))
    trait = 0.6 * noise.normal("user fails", groups.user) + 0.8 * noise.normal("group fails", group)
    chance = noise.normal("job fails", np.arange(len(jobs.group)))
    latent = np.sqrt(law.persistence) * trait[jobs.group] + np.sqrt(1.0 - law.persistence) * chance
    return np.asarray(latent > np.quantile(latent, 1.0 - law.failed), dtype=np.bool_)


def _latent(calibration: Calibration, noise: Noise, groups: Groups, jobs: Jobs, need: Floats) -> Floats:
    """Return the sum of all effects on run time, in log10 units."""
    law = calibration.run_time
    group = np.arange(len(groups.size))
    lasting = law.user_sd * noise.normal("user runs", groups.user) + law.group_sd * noise.normal("group runs", group)
    lasting += law.gang_slope * np.log10(groups.gang * np.fmax(groups.plan_gpu, 100.0) / 100.0)
    scatter = law.noise_sd_median * np.exp(law.noise_sd_spread * noise.normal("group scatters", group))
    trend = law.wander_sd * noise.normal("group wanders", group)
    week = (jobs.submit_s - calibration.trace.start_s) // _SECONDS_PER_WEEK
    drift = law.drift_sd_per_week * np.cumsum(noise.normal("drift", np.arange(int(week.max()) + 1)))
    unmet_cpu = np.log10(np.maximum(need[jobs.group, 0] / jobs.plan_cpu, 1.0))
    unmet_gpu = np.log10(np.fmax(need[jobs.group, 1] / jobs.plan_gpu, 1.0))
    own = np.minimum(scatter, law.noise_sd_cap)[jobs.group] * noise.normal("run", np.arange(len(jobs.group)))
    latent = lasting[jobs.group] + trend[jobs.group] * (2.0 * jobs.turn - 1.0) + drift[week]
    return np.asarray(latent + law.stretch_power * np.maximum(unmet_cpu, unmet_gpu) + own, dtype=np.float64)


def _outcomes(
    calibration: Calibration,
    noise: Noise,
    jobs: Jobs,
    failed: npt.NDArray[np.bool_],
    wait_s: Ints,
    run_s: Ints,
) -> Ints:
    """Return the jobs' status: running if they outlast the trace; more are drawn, up to the published share."""
    law, index = calibration.outcomes, np.arange(len(run_s))
    began = jobs.submit_s + _MOST_LAG_S + wait_s
    outlives = began + run_s > calibration.trace.start_s + calibration.trace.days * 86_400
    extra = max(0.0, law.running - float(outlives.mean())) / (1.0 - law.failed)
    drawn = noise.uniform("outcome", index)
    status = np.where(failed, FAILING, np.where(drawn < extra, RUNNING, TERMINATED))
    status = np.where(outlives, RUNNING, status)
    unserved = drawn > 1.0 - law.waiting / (1.0 - law.failed)
    return np.where((began > jobs.submit_s.max()) | (~failed & unserved), WAITING, status)


def _waits(calibration: Calibration, noise: Noise, gpu_type: npt.NDArray[np.str_]) -> Ints:
    """Draw each job's queueing delay by its GPU type; all tasks of a job have the same delay."""
    score, wait = noise.normal("wait", np.arange(len(gpu_type))), np.zeros(len(gpu_type))
    for name, curve in calibration.waits.items():
        mine = (gpu_type == name) | ((gpu_type == "") & (name == "MISC"))
        wait[mine] = curve.at(score[mine])
    return np.rint(np.minimum(wait, _MOST_WAIT_S)).astype(np.int64)


def _task_status(
    calibration: Calibration, noise: Noise, job_status: Ints, side: npt.NDArray[np.bool_], index: Ints
) -> Ints:
    """Return the tasks' status: their job's status, but side tasks of a failed job are running or terminated."""
    stays = noise.uniform("side stays", index) < calibration.outcomes.side_running
    beside = np.where(stays, RUNNING, TERMINATED)
    return np.where(side & (job_status == FAILING), beside, job_status)
