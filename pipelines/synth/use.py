"""Draw the use of workers: a Gaussian copula gives normal scores per task, quantile curves give values per worker.

The copula has the published rank correlations, including those with run time and gang size.
"""

from dataclasses import dataclass
from typing import Final

import numpy as np
import numpy.typing as npt

from features.vocabulary import GPU_MEM_GIB_OF_TYPE
from pipelines.synth.calibration import FAILED, UNTAGGED, Calibration
from pipelines.synth.population import Groups, Jobs
from pipelines.synth.random_numbers import Floats, Ints, Noise, normal_ranks
from pipelines.synth.runtime import FAILING, Runs, Tasks, measured_share

_ASSUMED_GPU_MEM_GIB: Final = 16.0
"""GPU memory assumed for types whose memory is unknown (MISC)."""

_TIGHT: Final = 0.8
"""Minimum correlation of quantities that count as linked by definition, as mean and maximum of the same use; such
correlations are not reduced within a workload."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Scores:
    """Normal scores of use, shape (tasks, quantities), and the index of each task's set of curves."""

    scores: npt.NDArray[np.float32]
    curve: Ints


@dataclass(frozen=True, slots=True, kw_only=True)
class Copula:
    """A Gaussian copula given run time and gang size.

    `loadings` are the coefficients of run time and gang size, shape (quantities, 2); `root` is the Cholesky factor of
    the remaining correlation of the quantities.
    """

    loadings: Floats
    root: Floats


def copula(calibration: Calibration) -> Copula:
    """Convert the published rank correlations to a Gaussian copula conditional on run time and gang size."""
    ranks = np.array(calibration.use.correlations)
    pearson = 2.0 * np.sin(np.pi * ranks / 6.0)
    weaker = np.where(np.abs(ranks) < _TIGHT, calibration.use.within_workload, 1.0)
    values, vectors = np.linalg.eigh(pearson * weaker)
    nearest = (vectors * np.maximum(values, 1e-6)) @ vectors.T
    spread = np.sqrt(np.diag(nearest))
    nearest /= np.outer(spread, spread)
    loadings = nearest[2:, :2] @ np.linalg.inv(nearest[:2, :2])
    remains = nearest[2:, 2:] - loadings @ nearest[:2, 2:]
    return Copula(loadings=loadings, root=np.linalg.cholesky(remains + 1e-9 * np.eye(len(remains))))


def group_scores(calibration: Calibration, noise: Noise, groups: Groups) -> Floats:
    """Return the part of each group's use that is the same in all its runs, as uncorrelated standard normal scores."""
    names, share = calibration.use.names, calibration.use.user_share
    group = np.arange(len(groups.size))
    return np.column_stack(
        [
            np.sqrt(share) * noise.normal(f"user uses {name}", groups.user)
            + np.sqrt(1.0 - share) * noise.normal(f"group uses {name}", group)
            for name in names
        ]
    )


def group_need(calibration: Calibration, groups: Groups, lasting: Floats) -> Floats:
    """Return the CPU and GPU in percent that an instance of each group needs, shape (groups, 2)."""
    scores = lasting @ copula(calibration).root.T
    need = np.empty((len(groups.size), 2))
    for each, described in enumerate(calibration.classes):
        mine = groups.klass == each
        for column, name in enumerate(("cpu_usage", "gpu_wrk_util")):
            curve = calibration.use_curves[described.use_curve][name]
            need[mine, column] = curve.at(scores[mine, calibration.use.names.index(name)])
    return need


def draw_scores(
    calibration: Calibration, noise: Noise, groups: Groups, jobs: Jobs, runs: Runs, tasks: Tasks, lasting: Floats
) -> Scores:
    """Draw each task's normal scores of use; over the measured workers of each curve they are exactly normal."""
    law, made = calibration.use, copula(calibration)
    index, group = np.arange(len(tasks.job)), jobs.group[tasks.job]
    names = list(calibration.use_curves)
    of_class = np.array([names.index(c.use_curve) for c in calibration.classes])
    failed = tasks.status == FAILING
    curve = np.where(failed, names.index(FAILED), of_class[groups.klass[group]])
    workers = tasks.instances * measured_share(calibration, tasks.instances)
    jitter = noise.uniform("gang jitter", index)
    gang = normal_ranks(np.log(tasks.instances) + 1e-3 * jitter, np.zeros_like(index), workers)
    # Tasks without GPUs (NaN) are a separate stratum, so that the published distributions hold for workers with GPUs.
    stratum = 2 * curve + np.isnan(tasks.plan_gpu)
    lasting_share = 1.0 - np.array(law.run_share)
    own = np.column_stack([noise.normal(f"run uses {name}", index) for name in law.names])
    # A quantity that hardly varies between a group's runs depends on the group's mean run time, not on one run's.
    means = np.bincount(jobs.group, runs.score) / np.maximum(np.bincount(jobs.group), 1)
    usual = means[jobs.group][tasks.job]
    unusual = runs.score[tasks.job] - usual
    follows = np.minimum(1.0, np.sqrt(np.array(law.run_share) / max(law.run_share)))
    pull = np.where(
        curve == names.index(UNTAGGED), law.request_pull * np.log(np.nan_to_num(tasks.plan_gpu, nan=50.0) / 50.0), 0.0
    )
    scores = np.empty((len(index), len(law.names)), dtype=np.float32)
    mixed = np.sqrt(lasting_share) * lasting[group] + np.sqrt(np.array(law.run_share)) * own
    for column in range(len(law.names)):
        run_time = usual + follows[column] * unusual
        latent = mixed @ made.root[column] + made.loadings[column] @ np.stack([run_time, gang])
        if law.names[column] == "gpu_wrk_util":
            latent += pull
        scores[:, column] = normal_ranks(latent, stratum, workers)
    return Scores(scores=scores, curve=curve)


def worker_use(
    calibration: Calibration, noise: Noise, scores: Scores, tasks: Tasks, task: Ints, worker: Ints, device: Ints
) -> dict[str, Floats]:
    """Return the use of workers: one row per (worker, device); NaN in the GPU columns of tasks without GPUs."""
    law = calibration.use
    values: dict[str, Floats] = {}
    names = list(calibration.use_curves)
    curve = scores.curve[task]
    cpu_only = np.isnan(tasks.plan_gpu[task])
    for column, name in enumerate(law.names):
        own = noise.normal(f"worker uses {name}", worker * 8 + device if "gpu" in name else worker)
        share = law.worker_share[column]
        score = np.sqrt(1.0 - share) * scores.scores[task, column] + np.sqrt(share) * own
        value = np.empty(len(task))
        for each in np.unique(curve):
            mine = curve == each
            value[mine] = calibration.use_curves[names[each]][name].at(score[mine])
        values[name] = np.where(cpu_only, value * law.side_scale[column], value)
    return _possible(values, tasks.gpu_type[task], cpu_only)


def _possible(
    values: dict[str, Floats], gpu_type: npt.NDArray[np.str_], cpu_only: npt.NDArray[np.bool_]
) -> dict[str, Floats]:
    """Return the values with means at most their maxima, and GPU use and memory at most the capacity of the GPU."""
    device = np.full(len(gpu_type), _ASSUMED_GPU_MEM_GIB)
    for name, size in GPU_MEM_GIB_OF_TYPE.items():
        device[gpu_type == name] = size
    values["gpu_wrk_util"] = np.minimum(values["gpu_wrk_util"], 100.0)
    values["max_gpu_wrk_mem"] = np.minimum(values["max_gpu_wrk_mem"], 0.98 * device)
    values["avg_gpu_wrk_mem"] = np.minimum(values["avg_gpu_wrk_mem"], values["max_gpu_wrk_mem"])
    values["avg_mem"] = np.minimum(values["avg_mem"], values["max_mem"])
    for name in ("gpu_wrk_util", "avg_gpu_wrk_mem", "max_gpu_wrk_mem"):
        values[name] = np.where(cpu_only, np.nan, values[name])
    return values
