"""Rounds drawn by seed: jobs from ranges of what was measured, or of any speed and power at all.

No file is read and no plan is made. Called by `pipelines.studies.carbon.carbon_gap` and benchmarks.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Final, TypedDict

import numpy as np

from scheduler_core.planning.carbon.elastic import ElasticJobs
from scheduler_core.types import FloatArray

NODE_GPUS: Final = 4
MHZ: Final = np.array([885.0, 1012.0, 1140.0, 1335.0, 1530.0])
REFERENCE_MHZ: Final = 1530.0


class Around(TypedDict):
    """What a round gets besides jobs, as the allocators take it."""

    gpus: int
    intensity_g_per_kwh: float
    budget_g: float
    period_s: float
    pue: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Round:
    """The arguments of one round."""

    jobs: ElasticJobs
    gpus: int
    intensity_g_per_kwh: float
    budget_g: float
    period_s: float
    pue: float

    def around(self) -> Around:
        """Return the arguments besides the jobs."""
        return {
            "gpus": self.gpus,
            "intensity_g_per_kwh": self.intensity_g_per_kwh,
            "budget_g": self.budget_g,
            "period_s": self.period_s,
            "pue": self.pue,
        }


def measured_like(rng: np.random.Generator, jobs: int, gpus: int, mhz: FloatArray = MHZ) -> ElasticJobs:
    """Draw jobs from the ranges of measured models.

    Frequency: time a + b·1530/f with a, b as fitted to 33 V100 workloads (10th to 90th percentile), power p0 + c·f³.
    Speed: n / (1 + r^y)^(1/y), r the synchronisation over the computation, little within a node of 4 GPUs and up to
    three times that beyond it: efficiencies 0.4 to 1, as measured on six clusters, with a step at the node's border.
    Ten minutes to twenty hours of work on one GPU.
    """
    b = rng.uniform(0.02, 0.61, jobs)[:, None]
    perf = 1.0 / ((1.0 - b) + b * REFERENCE_MHZ / mhz)
    p0_w, c_w = rng.uniform(37.0, 87.0, jobs)[:, None], rng.uniform(30.0, 127.0, jobs)[:, None]
    watts = p0_w + c_w * (mhz / REFERENCE_MHZ) ** 3
    gamma = rng.uniform(1.0, 3.0, jobs)[:, None]
    local = np.exp(rng.uniform(np.log(0.02), np.log(1.2), jobs))[:, None]
    counts = np.arange(1, gpus + 1)
    sync = local * np.where(counts > NODE_GPUS, rng.uniform(1.0, 3.0, jobs)[:, None], 1.0) * (counts > 1)
    speeds = counts / (1.0 + sync**gamma) ** (1.0 / gamma)
    return _jobs(rng, np.exp(rng.uniform(np.log(600.0), np.log(72_000.0), jobs)), speeds, perf, watts, mhz)


def anything(rng: np.random.Generator, jobs: int, gpus: int, mhz: FloatArray = MHZ) -> ElasticJobs:
    """Draw jobs of speeds that grow by any amounts, in any curve, faster or slower by frequency at any cost."""
    speeds = np.cumsum(rng.uniform(0.01, 1.0, (jobs, gpus)), axis=1)
    perf = np.sort(rng.uniform(0.3, 1.0, (jobs, len(mhz))), axis=1)
    watts = np.sort(rng.uniform(40.0, 300.0, (jobs, len(mhz))), axis=1)
    return _jobs(rng, np.exp(rng.uniform(np.log(60.0), np.log(36_000.0), jobs)), speeds, perf, watts, mhz)


def _jobs(
    rng: np.random.Generator,
    work_s: FloatArray,
    speeds: FloatArray,
    perf: FloatArray,
    watts: FloatArray,
    mhz: FloatArray,
) -> ElasticJobs:
    jobs, gpus = speeds.shape
    rigid = np.where(rng.random(jobs) < 0.1, np.minimum(2 ** rng.integers(0, 4, jobs), gpus // 2), 0)
    return ElasticJobs(
        steps_left=work_s,
        steps_per_s=np.hstack([np.zeros((jobs, 1)), speeds]),
        perf=perf,
        watts=watts,
        mhz=mhz,
        # Ages add the same to every plan, and would make gaps look smaller.
        age_s=np.zeros(jobs),
        rigid_gpus=rigid.astype(np.int64),
    )


Draw = Callable[[np.random.Generator, int, int], ElasticJobs]
INSTANCES: Final[Mapping[str, Draw]] = {"measured": measured_like, "anything": anything}


def drawn_round(instances: str, seed: int) -> Round:
    """Draw one round of 2 to 4 jobs, 4 to 8 GPUs and 5 frequencies, its budget from barely any to more than enough.

    The budget is 0.05 to 1.2 times what all GPUs would give off within the period at the mean power of the middle
    frequency.
    """
    rng = np.random.default_rng([seed, sorted(INSTANCES).index(instances)])
    gpus = int(rng.integers(4, 9))
    jobs = INSTANCES[instances](rng, int(rng.integers(2, 5)), gpus)
    period_s, intensity = float(rng.choice([300.0, 600.0, 900.0])), float(rng.uniform(20.0, 800.0))
    full_g = intensity * 1.2 * gpus * float(jobs.watts[:, len(MHZ) // 2].mean()) * period_s / 3.6e6
    return Round(
        jobs=jobs,
        gpus=gpus,
        intensity_g_per_kwh=intensity,
        budget_g=full_g * float(rng.uniform(0.05, 1.2)),
        period_s=period_s,
        pue=1.2,
    )
