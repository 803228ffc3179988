"""The source's two stages written plainly: every benefit from its formula, for every job, before every step."""

import numpy as np

from scheduler_core.planning.carbon.elastic import CountsAndFrequencies, ElasticJobs, remaining_s
from tests.scheduler_core.planning.carbon.emissions import job_emissions_g, period_emissions_g
from tests.scheduler_core.planning.carbon.made_rounds import Around, spent_g

WHOLE_JOB_S = 1e300


def plan_of(gpus: np.ndarray, step: np.ndarray) -> CountsAndFrequencies:
    return CountsAndFrequencies(gpus=gpus, step=step, postponed=gpus == 0)


def stepped(jobs: ElasticJobs, plan: CountsAndFrequencies, row: int, stage: str) -> CountsAndFrequencies | None:
    """The plan with the next allowed count, or the next frequency, of one job."""
    gpus, step = plan.gpus.copy(), plan.step.copy()
    if stage == "frequency":
        step[row] += 1
        return plan_of(gpus, step) if gpus[row] > 0 and step[row] < len(jobs.mhz) else None
    more = [count for count in range(gpus[row] + 1, jobs.most_gpus + 1) if jobs.allowed[row, count]]
    if not more:
        return None
    gpus[row] = more[0]
    return plan_of(gpus, step)


def benefit(
    jobs: ElasticJobs, before: CountsAndFrequencies, after: CountsAndFrequencies, row: int, charged_s: float
) -> tuple[int, float] | None:
    """The class of the step, and its benefit: the source's formula with T̄ and C of this moment; most first.

    `charged_s` is the time that emissions count for, without end in the source. At 1 g/kWh: the formula says
    nothing at 0, and what emits least is then what draws least.
    """
    left_1, left_2 = remaining_s(jobs, before), remaining_s(jobs, after)
    if before.gpus[row] == 0:
        return 2, -float(left_2[row] * job_emissions_g(jobs, after, intensity_g_per_kwh=1.0)[row])
    grams_1, grams_2 = (
        period_emissions_g(jobs, plan, intensity_g_per_kwh=1.0, period_s=charged_s) for plan in (before, after)
    )
    if left_2[row] >= left_1[row]:
        return None
    if grams_2[row] <= grams_1[row]:
        return 1, float(left_1[row] - left_2[row])
    mean_s, cluster_g = left_1[before.gpus > 0].mean(), grams_1.sum()
    shorter = (left_1[row] - left_2[row]) / mean_s
    return 0, float(shorter / ((grams_2[row] - grams_1[row]) / cluster_g))


def naive_allocate(jobs: ElasticJobs, around: Around, past_budget: str, charge: str) -> CountsAndFrequencies:
    """Both stages from the energy-optimal frequency."""
    plan = plan_of(np.zeros(len(jobs), dtype=np.int64), jobs.optimal_step)
    for stage in ("counts", "frequency"):
        plan = _climbed(jobs, around, past_budget, stage, plan, around.period_s if charge == "period" else WHOLE_JOB_S)
    return plan


def _climbed(
    jobs: ElasticJobs, around: Around, past_budget: str, stage: str, plan: CountsAndFrequencies, charged_s: float
) -> CountsAndFrequencies:
    stopped = False
    while True:
        asked = []
        for row in range(len(jobs)):
            after = stepped(jobs, plan, row, stage)
            found = None if after is None else benefit(jobs, plan, after, row, charged_s)
            if after is not None and found is not None and after.gpus.sum() <= around.gpus:
                asked.append((found, row, after))
        # Of equal benefits the older job, then the first: what the tests draw has no other ties.
        asked.sort(key=lambda each: (-each[0][0], -each[0][1], -jobs.age_s[each[1]]))
        for found, _, after in asked:
            if spent_g(jobs, after, around) <= around.budget_g * (1.0 - 1e-11):
                plan = after
                break
            if past_budget == "stop" and found[0] != 2:
                stopped = True
                break
        else:
            return plan
        if stopped:
            return plan
