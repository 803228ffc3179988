"""Arriving jobs made up for tests: two frequencies, speeds that grow with GPUs but less than in proportion."""

import numpy as np

from pipelines.studies.carbon.jobs import ArrivingJobs

MOST = 4


def arriving(
    submit_s: list[float],
    run_s: list[float],
    *,
    requested: list[int] | None = None,
) -> ArrivingJobs:
    """Make jobs whose work is seconds on one GPU at the highest frequency; n GPUs are as fast as n^0.5 of them."""
    many = len(submit_s)
    speeds = np.tile(np.sqrt(np.arange(MOST + 1)), (many, 1))
    asked = np.array(requested if requested is not None else [1] * many, dtype=np.int64)
    perf, watts = np.tile([0.8, 1.0], (many, 1)), np.tile([100.0, 200.0], (many, 1))
    return ArrivingJobs(
        submit_s=np.array(submit_s),
        steps=np.array(run_s),
        steps_per_s=speeds,
        perf=perf,
        modelled_perf=perf,
        watts=watts,
        modelled_watts=watts,
        mhz=np.array([900.0, 1500.0]),
        requested=asked,
    )


def drawn(seed: int, jobs: int = 12) -> ArrivingJobs:
    """Draw jobs of up to half an hour that come within an hour."""
    rng = np.random.default_rng(seed)
    return arriving(
        np.sort(rng.uniform(0.0, 3600.0, jobs)).tolist(),
        rng.uniform(30.0, 1800.0, jobs).tolist(),
        requested=rng.integers(1, MOST + 1, jobs).tolist(),
    )
