"""The published statistics from which the synthetic trace is drawn: read from `data/calibration/pai.toml`.

Nothing is drawn here.
"""

import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from pipelines.errors import SynthesisError
from pipelines.synth.random_numbers import Curve

__all__ = ["Calibration", "load_calibration"]

CALIBRATION_FILE: Final = Path(__file__).resolve().parents[2] / "data" / "calibration" / "pai.toml"
FAILED: Final = "failed"
UNTAGGED: Final = "untagged"


@dataclass(frozen=True, slots=True, kw_only=True)
class Counts:
    """Row counts of the full PAI trace, and its period."""

    tasks: int
    jobs: int
    instances: int
    sensor_rows: int
    metric_rows: int
    start_s: int
    days: int
    utc_offset_s: int


@dataclass(frozen=True, slots=True, kw_only=True)
class MachineClass:
    """One machine type: GPU type, capacity, and number of machines."""

    gpu_type: str
    cpu_cores: int
    mem_gb: int
    gpus: int
    count: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcomes:
    """Shares of jobs by status at the end of the trace."""

    failed: float
    running: float
    waiting: float
    side_running: float
    persistence: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Arrivals:
    """Arrival rates by hour and weekday, their variation by day, hour and minute, and the spread of a group's jobs."""

    hours: tuple[float, ...]
    weekdays: tuple[float, ...]
    day_sd: float
    hour_sd: float
    lull_hours: int
    lull_share: float
    minute_power: float
    batch_share: float
    batch_days: tuple[float, float]
    span_days: tuple[float, float]
    jobs_per_day: float


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupSizes:
    """The number of jobs per group: a truncated discrete Pareto distribution."""

    exponent: float
    largest: int
    smallest_cap: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Users:
    """Tasks per user over the full trace."""

    at: tuple[float, ...]
    tasks: tuple[float, ...]
    count_exponent: float


@dataclass(frozen=True, slots=True, kw_only=True)
class RunTime:
    """Sizes of the effects on run time in log10 units; ranks of their sum are then mapped to the run-time curves."""

    user_sd: float
    group_sd: float
    noise_sd_median: float
    noise_sd_spread: float
    noise_sd_cap: float
    gang_slope: float
    drift_sd_per_week: float
    wander_sd: float
    stretch_power: float
    retuned_share: float
    least_s: float
    most_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Use:
    """How the use of workers varies between users, runs and workers, and the correlations of its quantities."""

    names: tuple[str, ...]
    run_share: tuple[float, ...]
    worker_share: tuple[float, ...]
    user_share: float
    request_pull: float
    within_workload: float
    measured_gang: float
    measured_power: float
    unmeasured_task: float
    metric_share: float
    side_scale: tuple[float, ...]
    correlations: tuple[tuple[float, ...], ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class SideTasks:
    """Shares of requests `(plan_cpu, plan_mem, share)` and sizes `(instances, share)` of tasks without GPUs."""

    requests: tuple[tuple[float, float, float], ...]
    instances: tuple[tuple[float, float], ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Metric:
    """Machine metrics: medians by machine type, and standard deviations of the natural logarithms."""

    gpu_util: Mapping[str, float]
    cpu: Mapping[str, float]
    workers: Mapping[str, float]
    gpu_util_sd: float
    cpu_sd: float
    workers_sd: float
    kernel_frac: float
    iowait: float
    iowait_sd: float
    receive_bytes_per_s: float
    receive_sd: float


@dataclass(frozen=True, slots=True, kw_only=True)
class JobClass:
    """A class of jobs: workload tag ("" for none), main role, jobs in the full trace, and requests of groups."""

    tag: str
    role: str
    jobs: float
    side: tuple[tuple[str, float], ...]
    instances: tuple[tuple[float, float], ...]
    requests: tuple[tuple[float, float, float, float], ...]
    gpu_types: Mapping[str, float]

    @property
    def run_time_curve(self) -> str:
        """Return the name of the class's run-time curve: the tag, or the role if there is no tag."""
        return self.tag or self.role

    @property
    def use_curve(self) -> str:
        """Return the name of the class's curves of use."""
        return self.tag or UNTAGGED


@dataclass(frozen=True, slots=True, kw_only=True)
class Published:
    """Published statistics that are only compared with the synthetic trace; the calibration file has their sources."""

    tags: tuple[str, ...]
    roles: tuple[str, ...]
    task_status: Mapping[str, float]
    plan_gpu: Mapping[str, float]
    gpu_type: Mapping[str, float]
    plan_cpu: Mapping[str, float]
    plan_mem: Mapping[str, float]
    role: Mapping[str, float]
    gangs: Mapping[str, Any]  # Any: one share, and a table of shares
    run_time: Mapping[str, Any]  # Any: probabilities, values, and rows by GPUs
    spread: Mapping[str, float]
    gaps: Mapping[str, Any]  # Any: probabilities, values, and their variation
    use_over_request: Mapping[str, tuple[float, ...]]
    task_sums: Mapping[str, tuple[float, ...]]
    machine: Mapping[str, tuple[float, ...]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Calibration:
    """All distributions from which the synthetic trace is drawn."""

    trace: Counts
    machines: tuple[MachineClass, ...]
    outcomes: Outcomes
    arrivals: Arrivals
    groups: GroupSizes
    users: Users
    run_time: RunTime
    use: Use
    side_tasks: SideTasks
    waits: Mapping[str, Curve]
    metric: Metric
    classes: tuple[JobClass, ...]
    run_time_curves: Mapping[str, Curve]
    use_curves: Mapping[str, Mapping[str, Curve]]
    published: Published

    @property
    def published_tagged_share(self) -> float:
        """Return the share of jobs that carry a workload tag in the full trace."""
        return sum(c.jobs for c in self.classes if c.tag) / sum(c.jobs for c in self.classes)

    def shares(self, tagged_share: float | None = None) -> npt.NDArray[np.float64]:
        """Return each class's share of jobs; tagged classes together have `tagged_share` (None: as published)."""
        jobs = np.array([c.jobs for c in self.classes], dtype=np.float64)
        tagged = np.array([bool(c.tag) for c in self.classes])
        share = self.published_tagged_share if tagged_share is None else tagged_share
        share_of = np.where(tagged, share / jobs[tagged].sum(), (1.0 - share) / jobs[~tagged].sum())
        return np.asarray(share_of * jobs, dtype=np.float64)


def _frozen(value: Any) -> Any:  # Any: TOML values of every shape pass through
    return tuple(_frozen(v) for v in value) if isinstance(value, list) else value


def _kwargs(table: Mapping[str, Any]) -> dict[str, Any]:  # Any: the dataclass constructors check the names
    return {key: _frozen(value) for key, value in table.items()}


def _curves(table: Mapping[str, Any]) -> Mapping[str, Curve]:  # Any: raw TOML
    at = table["at"]
    return MappingProxyType({name: Curve.of(at, values) for name, values in table.items() if name != "at"})


def load_calibration(file: Path = CALIBRATION_FILE) -> Calibration:
    """Read a calibration file."""
    try:
        raw = tomllib.loads(file.read_text(encoding="utf-8"))
        return Calibration(
            trace=Counts(**raw["trace"]),
            machines=tuple(
                MachineClass(gpu_type=kind, cpu_cores=cpu, mem_gb=mem, gpus=gpus, count=count)
                for kind, cpu, mem, gpus, count in raw["machines"]["classes"]
            ),
            outcomes=Outcomes(**raw["outcomes"]),
            arrivals=Arrivals(**_kwargs(raw["arrivals"])),
            groups=GroupSizes(**raw["groups"]),
            users=Users(**_kwargs(raw["users"])),
            run_time=RunTime(**raw["run_time"]),
            use=Use(**_kwargs(raw["use"])),
            side_tasks=SideTasks(**_kwargs(raw["side_tasks"])),
            waits=_curves(raw["waits"]),
            metric=Metric(**raw["metric"]),
            classes=tuple(JobClass(**_kwargs(each)) for each in raw["classes"]),
            run_time_curves=_curves(raw["curves"]["run_time"]),
            use_curves={name: _curves(each) for name, each in raw["curves"]["use"].items()},
            published=Published(**_kwargs(raw["published"])),
        )
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise SynthesisError(
            f"{file}: not a calibration of the synthetic trace ({error}); compare it with the shipped pai.toml"
        ) from error
