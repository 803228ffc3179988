"""Emissions of a plan by their formulas, against which budgets are checked."""

import numpy as np

from scheduler_core.planning.carbon.elastic import CountsAndFrequencies, ElasticJobs, drawn_w, remaining_s
from scheduler_core.planning.power import JOULES_PER_KWH
from scheduler_core.types import FloatArray


def period_emissions_g(
    jobs: ElasticJobs, plan: CountsAndFrequencies, *, intensity_g_per_kwh: float, period_s: float, pue: float = 1.0
) -> FloatArray:
    """Return the grams each job emits within the period (J,): I·P_j·PUE·min(T_j, period); idle GPUs are not counted.

    A period's budget limits their sum (ours, as is the PUE; the carbon patent limits `job_emissions_g`).
    """
    running_s = np.minimum(remaining_s(jobs, plan), period_s)
    return np.asarray(intensity_g_per_kwh * pue * drawn_w(jobs, plan) * running_s / JOULES_PER_KWH, dtype=np.float64)


def job_emissions_g(
    jobs: ElasticJobs, plan: CountsAndFrequencies, *, intensity_g_per_kwh: float, pue: float = 1.0
) -> FloatArray:
    """Return the grams each job emits until its end at this intensity (J,): C_j = I·P_j·PUE·T_j; 0 if postponed.

    The carbon patent limits the sum of these emissions by its budget. The PUE is ours.
    """
    running_s = np.where(plan.gpus > 0, remaining_s(jobs, plan), 0.0)
    return np.asarray(intensity_g_per_kwh * pue * drawn_w(jobs, plan) * running_s / JOULES_PER_KWH, dtype=np.float64)
