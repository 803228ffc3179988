"""Speed and power of a GPU as functions of its power limit, for sites that limit power and not the core frequency.

Both are interpolated between measured limits; a limit outside the measured range is refused. Called by
`pipelines.studies.energy`.
"""

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from scheduler_core.errors import BadInput
from scheduler_core.types import FloatArray

__all__ = ["fit_power_limit"]


@dataclass(frozen=True, slots=True, kw_only=True)
class PowerLimitModel:
    """Seconds per epoch and mean watts measured at each power limit; limits ascend.

    References
    ----------
    Zeus: understanding and optimizing GPU energy consumption of DNN training (NSDI 2023); the published tables
    have these columns.

    >>> model = fit_power_limit([100.0, 200.0], [40.0, 10.0], [100.0, 160.0])
    >>> round(float(model.epoch_s(141.42)), 1), float(model.watts(150.0)), model.optimal_limit_w()
    (20.0, 130.0, 200.0)
    """

    limits_w: tuple[float, ...]
    epochs_s: tuple[float, ...]
    drawn_w: tuple[float, ...]

    def epoch_s(self, limit_w: npt.ArrayLike) -> FloatArray:
        """Return the seconds per epoch, interpolated linearly in log(limit) and log(seconds).

        Raises
        ------
        BadInput
            If a limit is outside the measured range.
        """
        at = np.log(self._measured(limit_w))
        return np.asarray(np.exp(np.interp(at, np.log(self.limits_w), np.log(self.epochs_s))))

    def watts(self, limit_w: npt.ArrayLike) -> FloatArray:
        """Return the mean watts of a running GPU, interpolated linearly between limits.

        Raises
        ------
        BadInput
            If a limit is outside the measured range.
        """
        return np.asarray(np.interp(self._measured(limit_w), self.limits_w, self.drawn_w))

    def optimal_limit_w(self) -> float:
        """Return the measured limit with the least energy per epoch; the lowest such limit in a tie."""
        return self.limits_w[int(np.argmin(np.multiply(self.epochs_s, self.drawn_w)))]

    def _measured(self, limit_w: npt.ArrayLike) -> FloatArray:
        limits = np.asarray(limit_w, dtype=np.float64)
        if not ((limits >= self.limits_w[0]) & (limits <= self.limits_w[-1])).all():
            raise BadInput(
                f"power limits {np.min(limits):g} to {np.max(limits):g} W, expected {self.limits_w[0]:g} to "
                f"{self.limits_w[-1]:g} W as measured"
            )
        return limits


def fit_power_limit(limit_w: npt.ArrayLike, epoch_s: npt.ArrayLike, watts: npt.ArrayLike) -> PowerLimitModel:
    """Return the model of one training job from its measurements: one row per power limit, in any order.

    Raises
    ------
    BadInput
        If columns differ in length or are empty, a limit is repeated, or a value is not finite and above zero.
    """
    limits, seconds, drawn = (np.asarray(each, dtype=np.float64) for each in (limit_w, epoch_s, watts))
    if limits.ndim != 1 or not len(limits) or not limits.shape == seconds.shape == drawn.shape:
        shapes = [each.shape for each in (limits, seconds, drawn)]
        raise BadInput(f"columns of {shapes}, expected three of the same length, at least one")
    if len(np.unique(limits)) < len(limits):
        raise BadInput(f"{len(limits)} limits of which {len(np.unique(limits))} differ, expected each once")
    for name, column in {"limits": limits, "seconds": seconds, "watts": drawn}.items():
        if not (np.isfinite(column) & (column > 0.0)).all():
            raise BadInput(f"{name} down to {np.min(column):g}, expected finite numbers above zero")
    order = np.argsort(limits)
    return PowerLimitModel(
        limits_w=tuple(limits[order].tolist()),
        epochs_s=tuple(seconds[order].tolist()),
        drawn_w=tuple(drawn[order].tolist()),
    )
