"""Errors of the power-limit models at limits held out, and what the limit of least energy saves and costs.

Interpolating is `scheduler_core.planning.power_limit`'s. Called by `pipelines.studies.energy.fits`.
"""

from typing import Final

import numpy as np
import polars as pl

from pipelines.studies.energy.measured import SETTING
from pipelines.studies.study import Row
from scheduler_core.planning.power_limit import fit_power_limit
from scheduler_core.types import FloatArray

LEAST_LIMITS: Final = 3
"""Of which the middle one can be held out."""


def limit_rows(table: pl.DataFrame) -> list[Row]:
    """Return a row per GPU type: errors at inner limits held out, one at a time, and what the best limits come to.

    Savings are against the highest limit measured, over the settings that have at least `LEAST_LIMITS`.
    """
    rows: list[Row] = []
    for (gpu_type,), of_type in table.group_by("gpu_type", maintain_order=True):
        settings = [
            tuple(rows_of.sort("limit_w")[name].to_numpy() for name in ("limit_w", "epoch_s", "watts"))
            for _, rows_of in of_type.group_by(*SETTING, maintain_order=True)
        ]
        full = [columns for columns in settings if len(columns[0]) >= LEAST_LIMITS]
        errors = np.array([error for columns in full for error in _held_out(*columns)])
        saved, slower, best = np.array([_best(*columns) for columns in full]).T
        rows.append(
            {
                "gpu_type": gpu_type,
                "settings": len(settings),
                "judged": len(full),
                "over_limit": int((of_type["watts"] > of_type["limit_w"]).sum()),
                "held_out": len(errors),
                "time_error_pct": float(errors[:, 0].mean()),
                "time_worst_pct": float(errors[:, 0].max()),
                "power_error_pct": float(errors[:, 1].mean()),
                "power_worst_pct": float(errors[:, 1].max()),
                "optimal_limit_w": float(np.median(best)),
                "saving_pct": float(saved.mean()),
                "slower_pct": float(slower.mean()),
            }
        )
    return rows


def _held_out(limits: FloatArray, seconds: FloatArray, watts: FloatArray) -> list[tuple[float, float]]:
    """Return the errors in percent of time and watts at each inner limit, interpolated from the others."""
    errors = []
    for out in range(1, len(limits) - 1):
        model = fit_power_limit(*(np.delete(each, out) for each in (limits, seconds, watts)))
        time, power = float(model.epoch_s(limits[out])) / seconds[out], float(model.watts(limits[out])) / watts[out]
        errors.append((100.0 * abs(time - 1.0), 100.0 * abs(power - 1.0)))
    return errors


def _best(limits: FloatArray, seconds: FloatArray, watts: FloatArray) -> tuple[float, float, float]:
    """Return what the limit of least energy saves, how much longer it takes, both in percent, and the limit."""
    model = fit_power_limit(limits, seconds, watts)
    best = int(np.argmax(limits == model.optimal_limit_w()))
    energy = seconds * watts
    return 100.0 * (1.0 - energy[best] / energy[-1]), 100.0 * (seconds[best] / seconds[-1] - 1.0), limits[best]
