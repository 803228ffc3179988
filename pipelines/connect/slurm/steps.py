"""The use of a job from its steps: mean CPUs, and bounds of the peak memory of one machine.

Slurm's MaxRSS is the largest *task*, TRESUsageInTot the sum over all machines of each step's peaks.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Final

from features.vocabulary import Status
from modelserve.amounts import is_capped

MIB_PER_GIB: Final = 1024.0
_LONG_AGO: Final = datetime(1970, 1, 1, tzinfo=UTC)
_NEVER: Final = datetime(9999, 1, 1, tzinfo=UTC)


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    """One step: its times, tasks and machines, CPU seconds, largest task and sum of peaks in MiB (None: no sample)."""

    start: datetime | None
    end: datetime | None
    out_of_memory: bool
    tasks: int
    nodes: int
    cpu_s: float
    max_rss_mib: float | None
    total_mib: float | None

    def most_mib(self) -> float | None:
        """Return an upper bound of one machine's memory at the step's peak; None without a sample.

        The bound is the sum over all machines, or the largest task times the machine's most tasks if that is lower
        (every other machine has one task), but at least an equal share of the sum.
        """
        if not self.max_rss_mib:
            return None
        total = max(self.total_mib or 0.0, self.max_rss_mib)
        most = self.max_rss_mib * max(self.tasks - self.nodes + 1, 1)
        return max(min(total, most), self.max_rss_mib, total / self.nodes)


@dataclass(frozen=True, slots=True, kw_only=True)
class Use:
    """Mean CPUs and peak memory of one machine's part of a job; None if unknown, which is not zero.

    `mem_most_gib` is an upper bound of the peak, so that a floor is not too low. Models learn from `taught_*`: None if
    a smaller request or an early end may have limited the use.
    """

    cpu_cores: float | None = None
    mem_most_gib: float | None = None
    taught_cpu_cores: float | None = None
    taught_mem_gib: float | None = None


def folded_use(
    steps: Sequence[Step],
    *,
    status: Status,
    run_s: float,
    instances: int,
    interval_s: float,
    shrunk_to: Mapping[str, float | None],
) -> Use:
    """Return the use of a job; it is unknown if the job was killed for memory or shorter than the sampling interval.

    `shrunk_to` holds the amount per machine that was given of each shrunk resource.
    """
    if status is Status.OOM or run_s < interval_s or any(step.out_of_memory for step in steps):
        return Use()
    most = _at_once([(step, mib) for step in steps if (mib := step.most_mib()) is not None])
    if most is None:
        return Use()
    cpu_cores, mem_gib = sum(step.cpu_s for step in steps) / run_s / instances, most / MIB_PER_GIB

    def taught(name: str, amount: float) -> float | None:
        capped = name in shrunk_to and is_capped(amount, shrunk_to[name])
        return None if status.cut_short or capped else amount

    return Use(
        cpu_cores=cpu_cores,
        mem_most_gib=mem_gib,
        taught_cpu_cores=taught("cpu_cores", cpu_cores),
        taught_mem_gib=taught("mem_gib", mem_gib),
    )


def _at_once(peaks: Sequence[tuple[Step, float]]) -> float | None:
    """Return the largest sum of the peaks of steps that run at the same time; None without steps."""
    if not peaks:
        return None
    # Within one second, starts count before ends, because Slurm's times are whole seconds.
    events = [(step.start or _LONG_AGO, 0, mib) for step, mib in peaks]
    events += [(step.end or _NEVER, 1, -mib) for step, mib in peaks]
    now = largest = 0.0
    for _, _, mib in sorted(events):
        now += mib
        largest = max(largest, now)
    return largest
