"""Elastic jobs that arrive over time: scaling, power by frequency, size and arrival, drawn from measured tables.

Scaling and power are paired at random, because they were measured on different programs. Called by `runs`, `months`,
`recorded`.
"""

from collections.abc import Sequence
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Final

import numpy as np
import polars as pl

from pipelines.errors import SourceError
from pipelines.simulation.elastic import Choice
from pipelines.studies.energy.measured import frequency_models, frequency_table, scaling_models, step_times
from scheduler_core.errors import BadInput
from scheduler_core.planning.carbon.elastic import ElasticJobs
from scheduler_core.planning.frequency import FrequencyModel
from scheduler_core.planning.scaling import ScalingModel
from scheduler_core.types import BoolArray, FloatArray, IntArray


@dataclass(frozen=True, slots=True, kw_only=True)
class ArrivingJobs:
    """J jobs, sorted by submission.

    `steps` (J,) is the work of each job, `steps_per_s` (J, N+1) its speed by GPU count at the highest frequency, and
    `perf` and `watts` (J, F) its relative speed and its power at the frequencies `mhz`, as in `ElasticJobs`. Planners
    see `predicted_steps`, `modelled_perf` and `modelled_watts` instead of the true values. `requested` (J,) is the
    requested GPU count; `elastic` (J,) marks jobs that may get another count.
    """

    submit_s: FloatArray
    steps: FloatArray
    predicted_steps: FloatArray
    steps_per_s: FloatArray
    perf: FloatArray
    modelled_perf: FloatArray
    watts: FloatArray
    modelled_watts: FloatArray
    mhz: FloatArray
    requested: IntArray
    elastic: BoolArray

    def __post_init__(self) -> None:
        jobs = len(self.submit_s)
        odd = [
            each.name
            for each in fields(self)
            if each.name != "mhz" and (np.shape(getattr(self, each.name)) or (-1,))[0] != jobs
        ]
        if odd:
            raise BadInput(f"arriving jobs: found {', '.join(odd)} not of {jobs} jobs, expected a row for each")
        if jobs and (np.diff(self.submit_s) < 0.0).any():
            raise BadInput("arriving jobs: found submissions out of order, expected them ascending; sort the jobs")
        rows = np.arange(jobs)
        asked = np.clip(self.requested, 0, self.steps_per_s.shape[1] - 1)
        if not (self.steps_per_s[rows, asked] > 0.0).all() or (asked != self.requested).any():
            raise BadInput("arriving jobs: found a request for a count without a speed, expected one for each job")

    def __len__(self) -> int:
        return len(self.submit_s)

    def submitted(self, rows: IntArray, *, as_requested: bool) -> ElasticJobs:
        """Return the jobs `rows` as a planner sees them at submission: `steps_left` is all their predicted work."""
        fixed = np.ones(len(rows), dtype=np.bool_) if as_requested else ~self.elastic[rows]
        return ElasticJobs(
            steps_left=self.predicted_steps[rows],
            steps_per_s=self.steps_per_s[rows],
            perf=self.modelled_perf[rows],
            watts=self.modelled_watts[rows],
            mhz=self.mhz,
            age_s=np.zeros(len(rows)),
            rigid_gpus=np.where(fixed, self.requested[rows], 0),
        )

    def true_s(self, rows: IntArray, choice: Choice) -> FloatArray:
        """Return the true run time in seconds of the whole jobs `rows` under a decision (n,)."""
        speed = self.steps_per_s[rows, choice.gpus] * self.perf[rows, choice.step]
        return np.asarray(self.steps[rows] / speed, dtype=np.float64)


CLUSTER: Final = "dgx-ext"
"""Name of the cluster whose measurements are used: it has all counts from 1 to 16 GPUs, on nodes of 8."""

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

HOUR_S: Final = 3600.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Measured:
    """Measurements from which jobs are drawn.

    `scaling` and `batches` are the scaling model and the measured batch sizes per GPU of each application. `perf`,
    `watts` and `models` are speed, power and fitted model of each workload at the frequencies `mhz`.
    """

    scaling: tuple[ScalingModel, ...]
    batches: tuple[FloatArray, ...]
    mhz: FloatArray
    perf: FloatArray
    watts: FloatArray
    models: tuple[FrequencyModel, ...]

    @classmethod
    def of(cls, folder: Path) -> "Measured":
        """Read the tables of the energy folder.

        Raises
        ------
        SourceError
            If a table is missing, not in the expected format, or lacks the cluster.
        """
        scaling = {name: model for (name, cluster), model in scaling_models(folder).items() if cluster == CLUSTER}
        if not scaling:
            raise SourceError(f"the step times have no rows of {CLUSTER} that a model can be made of")
        steps = step_times(folder).filter(pl.col("cluster") == CLUSTER)
        table = frequency_table(folder).sort("frequency_mhz", maintain_order=True)
        by_workload = [rows for _, rows in table.group_by("workload", maintain_order=True)]
        models = frequency_models(folder)
        return cls(
            scaling=tuple(scaling.values()),
            batches=tuple(
                steps.filter(pl.col("application") == name)["batch_per_gpu"].unique().sort().to_numpy()
                for name in scaling
            ),
            mhz=by_workload[0]["frequency_mhz"].to_numpy(),
            perf=np.array([rows["perf"].to_numpy() for rows in by_workload]),
            watts=np.array([rows["watts"].to_numpy() for rows in by_workload]),
            models=tuple(models[str(rows["workload"][0])] for rows in by_workload),
        )

    @property
    def full_w(self) -> float:
        """Return the mean watts of a running GPU at the highest frequency."""
        return float(self.watts[:, -1].mean())


def drawn(measured: Measured, rng: np.random.Generator, *, jobs: int, jobs_per_h: float) -> ArrivingJobs:
    """Draw jobs of the classes `SIZES` with Poisson arrivals."""
    kind = rng.choice(len(SIZES), size=jobs, p=[share for share, _, _ in SIZES])
    low, high = (np.array([hours[end] for _, hours, _ in SIZES])[kind] for end in (0, 1))
    gpu_hours = low * (high / low) ** rng.random(jobs)
    requested = np.array([rng.choice(SIZES[each][2]) for each in kind], dtype=np.int64)
    gaps_s = rng.exponential(HOUR_S / jobs_per_h, size=jobs)
    submit_s = np.cumsum(gaps_s) - gaps_s[0]
    run_s = gpu_hours / requested * HOUR_S
    return elastic(measured, rng, submit_s=submit_s, requested=requested, run_s=run_s, told_s=run_s)


def elastic(
    measured: Measured,
    rng: np.random.Generator,
    *,
    submit_s: FloatArray,
    requested: IntArray,
    run_s: FloatArray,
    told_s: FloatArray,
    rigid: Sequence[bool] | None = None,
) -> ArrivingJobs:
    """Return jobs of known run times, each with a randomly drawn application (scaling) and workload (frequencies).

    `run_s` (J,) is the run time with the requested GPUs at the highest frequency, `told_s` (J,) the run time that
    planners assume. Planners see the fitted frequency models; the simulation uses the measured values.

    A job's total batch is constant and split among its GPUs: the requested count times a measured batch per GPU. Every
    GPU count is allowed at which the batch per GPU is within the measured range. `rigid` marks jobs that keep their
    requested count.
    """
    jobs = len(submit_s)
    application = rng.integers(len(measured.scaling), size=jobs)
    workload = rng.integers(len(measured.models), size=jobs)
    speeds = np.stack(
        [_speeds(measured, which, int(asked), rng) for which, asked in zip(application, requested, strict=True)]
    )
    asked_speed = speeds[np.arange(jobs), requested]
    told = [measured.models[which] for which in workload]
    return ArrivingJobs(
        submit_s=submit_s,
        steps=run_s * asked_speed,
        predicted_steps=told_s * asked_speed,
        steps_per_s=speeds,
        perf=measured.perf[workload],
        modelled_perf=np.array([model.perf(measured.mhz) for model in told]),
        watts=measured.watts[workload],
        modelled_watts=np.array([model.watts(measured.mhz) for model in told]),
        mhz=measured.mhz,
        requested=requested,
        elastic=np.ones(jobs, dtype=np.bool_) if rigid is None else ~np.asarray(rigid, dtype=np.bool_),
    )


def _speeds(measured: Measured, application: int, requested: int, rng: np.random.Generator) -> FloatArray:
    """Return one job's samples per second by GPU count (N+1,); NaN where the batch per GPU is out of range."""
    batches = measured.batches[application]
    batch = requested * float(rng.choice(batches))
    counts = np.arange(MOST_GPUS + 1)
    speed = measured.scaling[application].split_throughput(counts, batch=batch)
    each = batch / np.maximum(counts, 1)
    within = (each >= batches[0]) & (each <= batches[-1])
    within[[0, requested]] = True
    return np.where(within, speed, np.nan)
