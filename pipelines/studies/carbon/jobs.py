"""Elastic jobs that arrive over time: scaling, power by frequency, size and arrival, drawn from measured tables.

Scaling and power are paired at random, because they were measured on different programs.
"""

import tomllib
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import numpy as np

from pipelines.errors import SourceError
from pipelines.simulation.elastic import Choice
from pipelines.studies.energy import by_frequency
from scheduler_core.planning.elastic import ElasticJobs
from scheduler_core.planning.hourly import HOUR_S
from scheduler_core.types import FloatArray, IntArray

FITTED: Final = Path(__file__).resolve().parents[3] / "data" / "power" / "fitted_models.toml"
"""Models of scaling and frequency, with their sources."""

MOST_GPUS: Final = 16
NODE_GPUS: Final = 8
SIZES: Final = (
    (0.72, (0.1, 1.0), (1,)),
    (0.20, (1.0, 10.0), (1, 2, 4)),
    (0.06, (10.0, 100.0), (4, 8, 16)),
    (0.02, (100.0, 1000.0), (8, 16)),
)
"""Classes of jobs: share of all jobs, range of GPU hours (log-uniform), and requested GPU counts (equally likely).

Shares and hours are those of Pollux (OSDI 2021), which follow the Philly trace. Counts are ours, similar to Gavel
(OSDI 2020): 70 % of jobs on one GPU, 25 % on two to four, 5 % on eight.
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class ArrivingJobs:
    """J jobs, sorted by submission.

    `steps` (J,) is the work of each job, `steps_per_s` (J, N+1) its speed by GPU count at the highest frequency, and
    `perf` and `watts` (J, F) its relative speed and its power at the frequencies `mhz`, as in `ElasticJobs`. Planners
    see `modelled_perf` and `modelled_watts` instead. `requested` (J,) is the requested GPU count.
    """

    submit_s: FloatArray
    steps: FloatArray
    steps_per_s: FloatArray
    perf: FloatArray
    modelled_perf: FloatArray
    watts: FloatArray
    modelled_watts: FloatArray
    mhz: FloatArray
    requested: IntArray

    def __len__(self) -> int:
        return len(self.submit_s)

    def submitted(self, rows: IntArray, *, as_requested: bool) -> ElasticJobs:
        """Return the jobs `rows` as a planner sees them at submission, rigid if they run `as_requested`."""
        return ElasticJobs(
            steps_left=self.steps[rows],
            steps_per_s=self.steps_per_s[rows],
            perf=self.modelled_perf[rows],
            watts=self.modelled_watts[rows],
            mhz=self.mhz,
            age_s=np.zeros(len(rows)),
            rigid_gpus=self.requested[rows] * int(as_requested),
        )

    def true_s(self, rows: IntArray, choice: Choice) -> FloatArray:
        """Return the true run time in seconds of the whole jobs `rows` under a decision (n,)."""
        speed = self.steps_per_s[rows, choice.gpus] * self.perf[rows, choice.step]
        return np.asarray(self.steps[rows] / speed, dtype=np.float64)


@dataclass(frozen=True, slots=True, kw_only=True)
class Measured:
    """Measurements from which jobs are drawn.

    `scaling` are the fitted models of step times by application, with the measured batch sizes per GPU. `perf` and
    `watts` (W, F) are measured speed and power of each workload at the frequencies `mhz`, `modelled_perf` and
    `modelled_watts` those of the fitted models.
    """

    scaling: tuple[dict[str, Any], ...]  # Any: numbers, and a list of them
    mhz: FloatArray
    perf: FloatArray
    watts: FloatArray
    modelled_perf: FloatArray
    modelled_watts: FloatArray

    @classmethod
    def of(cls, folder: Path) -> "Measured":
        """Read the tables by frequency of the energy folder, and the fitted models."""
        models, found = tomllib.loads(FITTED.read_text(encoding="utf-8")), by_frequency(folder)
        if unknown := [name for name in found.names if name not in models["frequency"]]:
            raise SourceError(f"found the workloads {', '.join(unknown[:5])} without a model, expected those published")
        a, b_mhz, p0_w, c_w = (
            np.array([[models["frequency"][name][field]] for name in found.names])
            for field in ("a", "b_mhz", "p0_w", "c_w_per_mhz3")
        )
        return cls(
            scaling=tuple(models["scaling"].values()),
            mhz=found.mhz,
            perf=found.perf,
            watts=found.watts,
            modelled_perf=(a + b_mhz / found.mhz[-1]) / (a + b_mhz / found.mhz),
            modelled_watts=p0_w + c_w * found.mhz**3,
        )

    @property
    def full_w(self) -> float:
        """Return the mean watts of a running GPU at the highest frequency."""
        return float(self.watts[:, -1].mean())


def drawn(measured: Measured, rng: np.random.Generator, *, jobs: int, jobs_per_h: float) -> ArrivingJobs:
    """Draw jobs of the classes `SIZES` with Poisson arrivals, each with an application (scaling) and a workload.

    A job's total batch is constant and split among its GPUs: the requested count times a measured batch per GPU. Every
    GPU count is allowed at which the batch per GPU is within the measured range.
    """
    kind = rng.choice(len(SIZES), size=jobs, p=[share for share, _, _ in SIZES])
    low, high = (np.array([hours[end] for _, hours, _ in SIZES])[kind] for end in (0, 1))
    gpu_hours = low * (high / low) ** rng.random(jobs)
    requested = np.array([rng.choice(SIZES[each][2]) for each in kind], dtype=np.int64)
    gaps_s = rng.exponential(HOUR_S / jobs_per_h, size=jobs)
    application = rng.integers(len(measured.scaling), size=jobs)
    workload = rng.integers(len(measured.perf), size=jobs)
    speeds = np.stack(
        [_speeds(measured.scaling[which], int(gpus), rng) for which, gpus in zip(application, requested, strict=True)]
    )
    speed = speeds[np.arange(jobs), requested]
    return ArrivingJobs(
        submit_s=np.cumsum(gaps_s) - gaps_s[0],
        steps=gpu_hours / requested * HOUR_S * speed,
        steps_per_s=speeds,
        perf=measured.perf[workload],
        modelled_perf=measured.modelled_perf[workload],
        watts=measured.watts[workload],
        modelled_watts=measured.modelled_watts[workload],
        mhz=measured.mhz,
        requested=requested,
    )


def _speeds(scaling: dict[str, Any], requested: int, rng: np.random.Generator) -> FloatArray:
    """Return one job's samples per second by GPU count (N+1,); NaN where the batch per GPU is out of range."""
    batches = scaling["batches"]
    batch = requested * float(rng.choice(batches))
    counts = np.arange(MOST_GPUS + 1)
    each = batch / np.maximum(counts, 1)
    speed = np.where(counts > 0, batch / step_s(scaling, np.maximum(counts, 1), each), 0.0)
    within = (each >= batches[0]) & (each <= batches[-1])
    within[[0, requested]] = True
    return np.where(within, speed, np.nan)


def step_s(scaling: dict[str, Any], gpus: IntArray, batch_per_gpu: FloatArray) -> FloatArray:
    """Return the seconds per training step on GPUs of as few nodes as can hold them.

    References
    ----------
    Pollux: co-adaptive cluster scheduling for goodput-optimized deep learning (OSDI 2021), sections 3.2 and 4.1.
    """
    grad_s = scaling["grad_s"] + scaling["grad_s_per_sample"] * batch_per_gpu
    beyond = np.maximum(gpus - 2.0, 0.0)
    remote_s = scaling["remote_s"] + scaling["remote_s_per_gpu"] * beyond
    local_s = scaling["local_s"] + scaling["local_s_per_gpu"] * beyond
    sync_s = np.where(gpus > 1, np.where(gpus > NODE_GPUS, remote_s, local_s), 0.0)
    longer, shorter = np.maximum(grad_s, sync_s), np.minimum(grad_s, sync_s)
    gamma = scaling["gamma"]
    return np.asarray(longer * (1.0 + (shorter / longer) ** gamma) ** (1.0 / gamma), dtype=np.float64)
