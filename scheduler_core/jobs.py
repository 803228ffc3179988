"""Columns of jobs, as schedulers read them."""

from dataclasses import dataclass
from typing import Any

import numpy as np

from scheduler_core.types import BoolArray, FloatArray, IntArray

__all__ = ["Jobs"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Jobs:
    """Columns of n jobs in the order of arrival, as `pipelines.simulation.engine.workload.Workload` describes them."""

    arrive_s: FloatArray
    request_units: IntArray
    granted_units: IntArray
    instances: IntArray
    gpu_type: IntArray
    user: IntArray
    priority: FloatArray
    run_s: FloatArray
    granted_run_s: FloatArray
    dies: BoolArray
    fails: BoolArray
    predicted_s: FloatArray
    predicted_p90_s: FloatArray
    gpu_types: tuple[str, ...]

    @classmethod
    def of(cls, units: IntArray, gpu_type: IntArray, gpu_types: tuple[str, ...], **given: Any) -> "Jobs":
        """Return jobs that request these units and types; by default one instance each, and none ever ends."""
        count = len(units)
        endless, no = np.full(count, np.inf), np.zeros(count, dtype=np.bool_)
        columns: dict[str, Any] = {
            **dict.fromkeys(("arrive_s", "priority"), np.zeros(count)),
            **dict.fromkeys(("run_s", "granted_run_s"), endless),
            **dict.fromkeys(("dies", "fails"), no),
            **dict.fromkeys(("predicted_s", "predicted_p90_s"), np.full(count, np.nan)),
            "instances": np.ones(count, dtype=np.int64),
            "user": np.zeros(count, dtype=np.int64),
        }
        return cls(
            request_units=units, granted_units=units, gpu_type=gpu_type, gpu_types=gpu_types, **{**columns, **given}
        )
