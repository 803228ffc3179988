"""How the use of a job varies while it runs: assumed, because the traces record means and peaks only.

Draws the variation of every arriving job. The constants come from the sources named in `Variation`.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

import numpy as np
from scipy.special import ndtr

from scheduler_core.types import BoolArray, FloatArray

__all__ = ["PROTOTYPE", "VARIATIONS", "Variation", "Varied", "draw"]

BANDS: Final = (0.3, 0.6, 0.9)
CV_OF_BAND: Final = (0.99, 0.57, 0.32, 0.15)
"""Median coefficient of variation (CV) by mean use as a share of the request: below 0.3, to 0.6, to 0.9, above.

The first three are those of Philly's GPU series; the last is assumed.
"""

CV_SPREAD: Final = 0.5
"""Standard deviation of the logarithm of a job's CV around the median of its band."""

LATE_FRAC: Final = 0.9
EARLY_S: Final = 600.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Variation:
    """How use varies within a run.

    Attributes
    ----------
    cv
        Coefficient of variation of CPU and of GPU compute; None draws it per job from `CV_OF_BAND`.
    steady_share, steady_cv
        Share of the jobs that hardly vary, and their CV; only if `cv` is None.
    slow_share, slow_s
        Share of the variance of log use that changes slowly and is common to the instances of a job, and its
        correlation time. The rest is drawn for each instance.
    cpu_s, gpu_s
        Correlation times of the rest.
    ramp_min, ramp_level, language_ramp
        Ranges of the length in minutes of the first phase of a run, and of use in it as a share of later use. With
        `language_ramp` runs of language models start at a tenth for two minutes instead.
    early_share, late_share
        Share of the jobs whose memory peak begins in the first ten minutes, and in the last tenth of the run; the
        others reach it at any time. Before it, memory is the peak divided by a factor in `growth`.
    interference
        Whether jobs on one device slow each other before it is full, as measured (see `use.shared_speed`); only if
        GPUs are counted singly.

    References
    ----------
    Jeon et al., USENIX ATC 2019 (Philly): CV of GPU use by mean use, autocorrelation of one minute 0.1.
    """

    cv: float | None = None
    steady_share: float = 1.0 / 3.0
    steady_cv: float = 0.03
    slow_share: float = 0.25
    slow_s: float = 3600.0
    cpu_s: float = 480.0
    gpu_s: float = 30.0
    ramp_min: tuple[float, float] = (1.0, 6.0)
    ramp_level: tuple[float, float] = (0.5, 1.0)
    language_ramp: bool = True
    early_share: float = 0.6
    late_share: float = 0.25
    growth: tuple[float, float] = (1.5, 2.2)
    interference: bool = True


PROTOTYPE: Final = Variation(
    cv=0.6,
    slow_share=0.5,
    cpu_s=120.0,
    gpu_s=120.0,
    ramp_min=(3.0, 3.0),
    ramp_level=(0.2, 0.2),
    language_ramp=False,
    early_share=0.0,
    late_share=0.0,
    interference=False,
)
"""The variation under which the design of reclaiming was first tried."""

VARIATIONS: Final[Mapping[str, Variation]] = {
    "default": Variation(),
    "prototype": PROTOTYPE,
    "constant": Variation(cv=0.0, slow_share=0.0),
    "cv_0.3": Variation(cv=0.3),
    "cv_1": Variation(cv=1.0),
    "late_peaks": Variation(early_share=0.4, late_share=0.5),
    "ideal": Variation(interference=False),
}
"""The variations that commands and studies offer, by name."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Varied:
    """The drawn variation of n jobs: columns as in `state.Jobs`."""

    sigma: FloatArray
    scale: FloatArray
    ramp_s: FloatArray
    ramp_level: FloatArray
    before_peak: FloatArray
    peak_at_s: FloatArray


def draw(
    variation: Variation, mean: FloatArray, limit: FloatArray, run_s: FloatArray, language: BoolArray, seed: int
) -> Varied:
    """Draw the variation of n jobs whose instances use `mean` (n, 2) CPU and GPU compute, at most `limit` (n, 2).

    Demand is scaled so that its mean below the limit is the recorded one.
    """
    rng = np.random.default_rng([seed, 2])
    count = len(run_s)
    steady = rng.random(count) < variation.steady_share
    factor = np.exp(CV_SPREAD * rng.standard_normal((count, 2)))
    ramp = rng.random((count, 2))
    when, within, growth, _ = rng.random((4, count))
    share = np.divide(mean, limit, out=np.zeros_like(mean), where=limit > 0.0)
    if variation.cv is None:
        medians = np.array(CV_OF_BAND)[np.searchsorted(BANDS, share, side="right")]
        cv = np.where(steady[:, None], variation.steady_cv, medians * factor)
    else:
        cv = np.full((count, 2), variation.cv)
    sigma = np.sqrt(np.log1p(cv * cv))
    talking = language & variation.language_ramp
    low, high = variation.ramp_min
    least, most = variation.ramp_level
    early, last = when < variation.early_share, when >= 1.0 - variation.late_share
    peak_at_s = np.where(
        early,
        within * np.minimum(run_s, EARLY_S),
        np.where(last, (LATE_FRAC + (1.0 - LATE_FRAC) * within) * run_s, within * run_s),
    )
    grown = variation.growth[0] + (variation.growth[1] - variation.growth[0]) * growth
    return Varied(
        sigma=sigma,
        scale=scale_to(mean, limit, sigma),
        ramp_s=60.0 * np.where(talking, 2.0, low + (high - low) * ramp[:, 0]),
        ramp_level=np.where(talking, 0.1, least + (most - least) * ramp[:, 1]),
        before_peak=1.0 / grown,
        peak_at_s=peak_at_s,
    )


def scale_to(mean: FloatArray, limit: FloatArray, sigma: FloatArray) -> FloatArray:
    """Return the scale s at which min(limit, s X) has the given mean, X lognormal with mean 1 (arrays of one shape).

    >>> round(float(scale_to(np.array([0.9]), np.array([1.0]), np.array([0.5]))[0]), 2)
    1.33
    """
    low, high = np.log(np.maximum(mean, 1e-300)), np.log(np.maximum(mean, 1e-300)) + 12.0
    for _ in range(60):
        middle = 0.5 * (low + high)
        below = clipped_mean(np.exp(middle), limit, sigma) < mean * (1.0 - 1e-9)
        low, high = np.where(below, middle, low), np.where(below, high, middle)
    return np.where(mean > 0.0, np.exp(high), 0.0)


def clipped_mean(scale: FloatArray, limit: FloatArray, sigma: FloatArray) -> FloatArray:
    """Return the mean of min(limit, scale X), X lognormal with mean 1 and standard deviation `sigma` of its log."""
    with np.errstate(divide="ignore"):
        edge = np.log(limit / scale)
    width = np.maximum(sigma, 1e-12)
    return np.asarray(
        scale * ndtr(edge / width - 0.5 * width) + limit * ndtr(-(edge / width + 0.5 * width)), dtype=np.float64
    )
