"""Speed and power of a GPU as functions of its core frequency: two fitted lines with two coefficients each.

Measured tables are read in `pipelines.studies.energy.measured`. Called by the carbon and energy studies.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from scheduler_core.errors import BadInput
from scheduler_core.types import FloatArray

__all__ = ["FrequencyModel", "fit_frequency", "line", "mean_error"]

LEAST_STEPS = 2
"""Minimum number of frequencies in a table, since each of the two fitted lines has two coefficients."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FrequencyModel:
    """Step time and power of a GPU as functions of its core frequency f.

    Step time divided by the step time at `reference_mhz` is `a + b_mhz / f`, which is 1 at the reference up to the
    error of the fit. A running GPU draws `p0_w + c_w_per_mhz3 * f**3` watts.

    References
    ----------
    PowerFlow: energy-efficient GPU clusters scheduling for deep learning (arXiv 2304.06381) models step time and power
    by frequency; of the formulas tried, these fit the measured tables best.

    >>> model = FrequencyModel(
    ...     steps_mhz=(500.0, 1000.0), reference_mhz=1000.0, a=0.5, b_mhz=500.0, p0_w=50.0, c_w_per_mhz3=1e-7
    ... )
    >>> model.time_ratio(500.0), model.perf(500.0), model.watts(500.0), model.optimal_mhz()
    (array(1.5), array(0.666...), array(62.5), 500.0)
    """

    steps_mhz: tuple[float, ...]
    reference_mhz: float
    a: float
    b_mhz: float
    p0_w: float
    c_w_per_mhz3: float

    def time_ratio(self, mhz: npt.ArrayLike) -> FloatArray:
        """Return the step time divided by the step time at the reference frequency."""
        return np.asarray(self.a + self.b_mhz / np.asarray(mhz, dtype=np.float64))

    def perf(self, mhz: npt.ArrayLike) -> FloatArray:
        """Return the speed divided by the speed at the reference frequency."""
        return np.asarray(self.time_ratio(self.reference_mhz) / self.time_ratio(mhz))

    def watts(self, mhz: npt.ArrayLike) -> FloatArray:
        """Return the watts of one running GPU."""
        return np.asarray(self.p0_w + self.c_w_per_mhz3 * np.asarray(mhz, dtype=np.float64) ** 3)

    def optimal_mhz(self) -> float:
        """Return the frequency with the least energy per unit of work; the lowest in a tie."""
        steps = np.asarray(self.steps_mhz)
        return self.steps_mhz[int(np.argmin(self.watts(steps) * self.time_ratio(steps)))]


def fit_frequency(
    mhz: npt.ArrayLike, perf: npt.ArrayLike, watts: npt.ArrayLike, *, reference_mhz: float | None = None
) -> FrequencyModel:
    """Fit a model to power and relative speed measured at several frequencies.

    `perf` is the speed divided by the speed at `reference_mhz`, by default the highest frequency. Both fits minimise
    squared relative errors.

    Raises
    ------
    BadInput
        If there are fewer than two frequencies, a frequency is repeated, a value is not finite and above zero, or the
        fitted times or watts are not above zero at every frequency.
    """
    steps, speeds, drawn = _columns(mhz, perf, watts)
    reference = float(steps.max()) if reference_mhz is None else float(reference_mhz)
    a, b_mhz = line(1.0 / steps, 1.0 / speeds)
    p0_w, c_w = line(steps**3, drawn)
    model = FrequencyModel(
        steps_mhz=tuple(float(step) for step in np.sort(steps)),
        reference_mhz=reference,
        a=a,
        b_mhz=b_mhz,
        p0_w=p0_w,
        c_w_per_mhz3=c_w,
    )
    if min(model.time_ratio(steps).min(), model.watts(steps).min()) <= 0.0:
        raise BadInput(
            f"a fit with times from {model.time_ratio(steps).min():.3g} and watts from {model.watts(steps).min():.3g}, "
            "expected both above zero at every step; look for mistaken rows in the table"
        )
    return model


def line(x: FloatArray, y: FloatArray) -> tuple[float, float]:
    """Return intercept and slope of the line that minimises squared relative errors in y; all y are above zero.

    >>> intercept, slope = line(np.array([1.0, 2.0, 4.0]), np.array([3.0, 5.0, 9.0]))
    >>> round(intercept, 9), round(slope, 9)
    (1.0, 2.0)
    """
    scale = float(np.abs(x).max())
    columns = np.column_stack([1.0 / y, x / scale / y])
    (intercept, slope), *_ = np.linalg.lstsq(columns, np.ones(len(y)), rcond=None)
    return float(intercept), float(slope) / scale


def mean_error(modelled: FloatArray, measured: FloatArray) -> float:
    """Return the mean absolute relative error of modelled values.

    >>> mean_error(np.array([1.1, 0.9]), np.array([1.0, 1.0]))
    0.1...
    """
    return float(np.abs(modelled / measured - 1.0).mean())


def _columns(*given: npt.ArrayLike) -> tuple[FloatArray, FloatArray, FloatArray]:
    """Return the columns as arrays, after checks: equal lengths, finite, above zero, no frequency repeated."""
    steps, speeds, drawn = (np.asarray(each, dtype=np.float64) for each in given)
    if steps.ndim != 1 or steps.shape != speeds.shape or steps.shape != drawn.shape or len(steps) < LEAST_STEPS:
        raise BadInput(
            f"columns of {[each.shape for each in (steps, speeds, drawn)]}, expected three of the same length, "
            f"at least {LEAST_STEPS}"
        )
    for name, column in {"frequencies": steps, "speeds": speeds, "watts": drawn}.items():
        if not (np.isfinite(column) & (column > 0.0)).all():
            raise BadInput(f"{name} {_some(column)}, expected finite numbers above zero; leave such rows out")
    if len(np.unique(steps)) < len(steps):
        raise BadInput(f"frequencies {_some(steps)}, expected each once; average rows of the same step first")
    return steps, speeds, drawn


def _some(column: Sequence[float] | FloatArray) -> str:
    return f"{', '.join(f'{each:g}' for each in column[:5])}{', ...' if len(column) > 5 else ''}"
