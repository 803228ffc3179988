"""What a policy's keys are made of, for all jobs at once; the loop only adds aging and what a job has attained.

The policies themselves are in `queueing`; these are the same in numpy. Called by `setup`.
"""

from collections.abc import Callable
from typing import Final

import numpy as np

from pipelines.simulation.engine.compiled.starts import DRF, FIXED, LAS, SRTF
from pipelines.simulation.engine.workload import Workload
from scheduler_core.cluster import MILLI
from scheduler_core.types import FloatArray, IntArray

Base = Callable[[Workload, IntArray], FloatArray]
"""A workload and the milli-GPUs of each gang, as it would be given them, to one number a job (n,)."""


def predicted_or_last(workload: Workload) -> FloatArray:
    """Return predicted run times (n,), infinite where nothing is known."""
    return np.where(np.isfinite(workload.predicted_s), workload.predicted_s, np.inf)


def _fifo(workload: Workload, gpus: IntArray) -> FloatArray:  # noqa: ARG001  # every base has the one signature
    return workload.arrive_s


def _predicted(workload: Workload, gpus: IntArray) -> FloatArray:  # noqa: ARG001  # every base has the one signature
    return predicted_or_last(workload)


def _qssf(workload: Workload, gpus: IntArray) -> FloatArray:
    known = np.isfinite(workload.predicted_s)
    return np.where(known, np.where(known, workload.predicted_s, 0.0) * (gpus / MILLI), np.inf)


def _weight(workload: Workload, gpus: IntArray) -> FloatArray:  # noqa: ARG001  # every base has the one signature
    return np.maximum(gpus, 1).astype(np.float64)


def _priority(workload: Workload, gpus: IntArray) -> FloatArray:  # noqa: ARG001  # every base has the one signature
    return -workload.priority


def _none(workload: Workload, gpus: IntArray) -> FloatArray:  # noqa: ARG001  # every base has the one signature
    return np.zeros(len(workload))


BASES: Final[dict[str, tuple[Base, int]]] = {
    "fifo": (_fifo, FIXED),
    "sjf": (_predicted, FIXED),
    "srtf": (_predicted, SRTF),
    "qssf": (_qssf, FIXED),
    "las": (_weight, LAS),
    "priority": (_priority, FIXED),
    "drf": (_none, DRF),
}
"""By policy: what its key is made of, and how the loop makes it."""
