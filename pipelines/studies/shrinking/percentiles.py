"""Right-sizing by percentiles of a group's earlier runs: published rules, to compare with floors from models.

Traces keep one value per run and resource (mean CPU and GPU, peak memory), so the rules are applied to these values.
The published systems apply them to much finer samples. Called by `arms`.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import numpy as np
import polars as pl

from scheduler_core.types import FloatArray, IntArray, Job, Knowledge, PeakUse, Predictor, RunTimes

GROUP: Final = ("trace", "cluster", "group", "role")
USED: Final = {
    "cpu_cores": "used_cpu_cores",
    "mem_gib": "mem_max_gib",
    "gpus": "used_gpus",
    "gpu_mem_gib": "gpu_mem_max_gib",
}
CPU_HALF_LIFE_S: Final = 12 * 3600.0
MEM_HALF_LIFE_S: Final = 48 * 3600.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Rule:
    """A percentile rule: percentile levels (1 is the maximum), relative margin, and half-lives of a run's weight."""

    what: str
    cpu_level: float
    mem_level: float
    margin: float
    cpu_half_life_s: float = float("inf")
    mem_half_life_s: float = float("inf")


RULES: Final = {
    "vpa": Rule(what="p90 of the group's earlier runs and 15 %", cpu_level=0.9, mem_level=0.9, margin=0.15),
    "autopilot": Rule(
        what="decaying p95 of CPU and GPU, peak of memory of the group's earlier runs, and 10 %",
        cpu_level=0.95,
        mem_level=1.0,
        margin=0.1,
        cpu_half_life_s=CPU_HALF_LIFE_S,
        mem_half_life_s=MEM_HALF_LIFE_S,
    ),
}
"""Published rules by name.

References
----------
Kubernetes vertical pod autoscaler: recommendations are the 90th percentile of use, with a safety margin of 15 %.
Rzadca et al.: Autopilot: workload autoscaling at Google (EuroSys 2020), section 3.2.1: percentiles of use weighted by
half-lives of 12 hours (CPU) and 48 hours (memory), the peak for memory that must not run out, margins of 10 to 15 %.
"""


def past_use(frame: pl.DataFrame, rule: Rule) -> PeakUse:
    """Return percentiles of use for every job (n), over runs of its group and role that ended before its submission.

    `frame` has canonical jobs joined with their use. Without a known group or an earlier run, the values are NaN.
    """
    submit_s, end_s = (frame[name].dt.epoch("us").to_numpy() / 1e6 for name in ("submit_ts", "end_ts"))
    used = np.column_stack([frame[name].cast(pl.Float64).to_numpy() for name in USED.values()])
    sizes = np.full((frame.height, len(USED)), np.nan)
    runs = np.zeros(frame.height, dtype=np.int64)
    groups = frame.with_row_index("row").filter(pl.col("group").is_not_null()).group_by(GROUP, maintain_order=True)
    for _, members in groups:
        rows = members["row"].to_numpy().astype(np.int64)
        for row in rows.tolist():
            past = rows[end_s[rows] < submit_s[row]]
            runs[row] = len(past)
            if len(past):
                age_s = submit_s[row] - end_s[past]
                sizes[row] = [
                    weighted_percentile(used[past, at], *_weighing(rule, name, age_s)) for at, name in enumerate(USED)
                ]
    return PeakUse(**{name: sizes[:, at] for at, name in enumerate(USED)}, runs=runs)


def weighted_percentile(values: FloatArray, weights: FloatArray, level: float) -> float:
    """Return the smallest value such that the values up to it have at least a share `level` of the total weight.

    >>> weighted_percentile(np.array([3.0, 1.0, 2.0]), np.ones(3), 0.6)
    2.0
    """
    order = np.argsort(values, kind="stable")
    below = np.cumsum(weights[order])
    # Rounding may put the target slightly above the last sum; at level 1 the answer must be the last value.
    at = min(int(np.searchsorted(below, level * below[-1] * (1.0 - 1e-12))), len(values) - 1)
    return float(values[order[at]])


def _weighing(rule: Rule, name: str, age_s: FloatArray) -> tuple[FloatArray, float]:
    is_memory = name.endswith("mem_gib")
    level = rule.mem_level if is_memory else rule.cpu_level
    half_life_s = rule.mem_half_life_s if is_memory else rule.cpu_half_life_s
    # Age is counted from the newest run, so that weights do not all underflow to 0.
    weights: FloatArray = 0.5 ** ((age_s - age_s.min()) / half_life_s)
    return weights, level


@dataclass(frozen=True, slots=True)
class WithUse:
    """A predictor with given peak use (one row per job, in order) and a run-time model that Algorithm 1 ignores."""

    predictor: Predictor
    use: PeakUse

    def run_times(self, jobs: Sequence[Job], rows: IntArray, requests: FloatArray) -> RunTimes:
        """Return the run times that the wrapped predictor predicts."""
        return self.predictor.run_times(jobs, rows, requests)

    def peak_use(self, jobs: Sequence[Job]) -> PeakUse:  # noqa: ARG002 -- the protocol gives the signature
        """Return the given peak use."""
        return self.use

    def knowledge(self, jobs: Sequence[Job]) -> list[Knowledge]:
        """Return empty knowledge for every job, so that Algorithm 1 sizes by floors alone."""
        return [Knowledge()] * len(jobs)


if TYPE_CHECKING:
    SATISFIES: type[Predictor] = WithUse
