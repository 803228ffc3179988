"""Statistics of a trace, listed in `STATISTICS`; each is a function that runs one query.

`verification` compares them with published numbers; charts are in `pipelines.report`.
"""

from typing import Final

from pipelines.statistics.claims import (
    over_claim,
    over_claim_as_published,
    request_and_use,
    request_fragmentation,
    resources_told,
    sizes,
    use,
)
from pipelines.statistics.environment import GPU_HOUR_DIMENSIONS, gpu_environment, gpu_power_by_use
from pipelines.statistics.machines import (
    CAPACITY_DIMENSIONS,
    MACHINE_DIMENSIONS,
    MACHINE_HOUR_DIMENSIONS,
    capacity,
    files,
    machine_classes,
    utilisation_by_hour,
    utilisation_by_machine_type,
)
from pipelines.statistics.outcomes import gpu_hours_by_status, group_recurrence, status_counts, user_concentration
from pipelines.statistics.query import JOB_DIMENSIONS
from pipelines.statistics.statistic import Answer, Statistic, Unanswerable, cluster_note
from pipelines.statistics.times import arrivals_by_hour, arrivals_by_weekday, jct, period, queueing_delay, run_time

__all__ = ["STATISTICS", "Answer", "Statistic", "Unanswerable", "cluster_note"]

_JOB: Final = tuple(JOB_DIMENSIONS)
_OUTCOME: Final = tuple(name for name in JOB_DIMENSIONS if name != "status")
_NO_ARRIVALS: Final = "all jobs have the same submission time, so arrivals are unknown"
_USED: Final = {"jobs": ("req_gpus",), "usage": ("used_gpus",)}

_ALL: Final = (
    Statistic(
        name="period", title="Period and population", unit="counts", function=period, needs={"jobs": ()}, by=_JOB
    ),
    Statistic(name="run_time", title="Run time", unit="s", function=run_time, needs={"jobs": ("run_s",)}, by=_JOB),
    Statistic(
        name="queueing_delay",
        title="Queueing delay",
        unit="s",
        function=queueing_delay,
        needs={"jobs": ("queue_s",)},
        by=_JOB,
    ),
    Statistic(
        name="jct",
        title="Job completion time (submit to end)",
        unit="s",
        function=jct,
        needs={"jobs": ("queue_s", "end_ts")},
        by=_JOB,
    ),
    Statistic(
        name="arrivals_by_hour",
        title="Arrivals by local hour",
        unit="jobs",
        function=arrivals_by_hour,
        needs={"jobs": ()},
        by=_JOB,
        otherwise=_NO_ARRIVALS,
    ),
    Statistic(
        name="arrivals_by_weekday",
        title="Arrivals by local weekday (Monday 1)",
        unit="jobs",
        function=arrivals_by_weekday,
        needs={"jobs": ()},
        by=_JOB,
        otherwise=_NO_ARRIVALS,
    ),
    Statistic(
        name="sizes",
        title="Requested GPUs over all instances",
        unit="GPUs, GPU-hours",
        function=sizes,
        needs={"jobs": ("req_gpus",)},
        by=_JOB,
    ),
    Statistic(
        name="request_fragmentation",
        title="GPU requests per instance",
        unit="tasks, GPU-hours",
        function=request_fragmentation,
        needs={"jobs": ("req_gpus",)},
        by=tuple(name for name in JOB_DIMENSIONS if name != "request_class"),
    ),
    Statistic(
        name="status_counts",
        title="Jobs by status",
        unit="jobs",
        function=status_counts,
        needs={"jobs": ()},
        by=_OUTCOME,
    ),
    Statistic(
        name="gpu_hours_by_status",
        title="GPU-hours by status",
        unit="GPU-hours",
        function=gpu_hours_by_status,
        needs={"jobs": ("req_gpus",)},
        by=_OUTCOME,
    ),
    Statistic(
        name="over_claim",
        title="Request above use",
        unit="tasks; core-, GPU- and GiB-hours",
        function=over_claim,
        needs=_USED,
        by=_JOB,
    ),
    Statistic(
        name="over_claim_as_published",
        title="Request above use, as PAI's notebook counts it",
        unit="tasks",
        function=over_claim_as_published,
        needs=_USED,
        by=_JOB,
    ),
    Statistic(
        name="request_and_use",
        title="Distributions of request and use per instance",
        unit="cores, GPUs, GiB",
        function=request_and_use,
        needs=_USED,
        by=_JOB,
    ),
    Statistic(
        name="use",
        title="Use per instance",
        unit="cores, GPUs, GiB, bytes/s",
        function=use,
        needs={"usage": ()},
        by=_JOB,
    ),
    Statistic(
        name="resources_told",
        title="Resources with a request or a use",
        unit="kinds",
        function=resources_told,
        needs={"jobs": ()},
        by=_JOB,
    ),
    Statistic(
        name="utilisation_by_hour",
        title="Utilisation by local hour",
        unit="busy fraction (0..1)",
        function=utilisation_by_hour,
        needs={"machine_usage": ()},
        by=tuple(MACHINE_HOUR_DIMENSIONS),
    ),
    Statistic(
        name="utilisation_by_machine_type",
        title="Utilisation by machine type",
        unit="busy fraction (0..1)",
        function=utilisation_by_machine_type,
        needs={"machine_usage": ()},
        by=tuple(name for name in MACHINE_HOUR_DIMENSIONS if name != "machine_type"),
    ),
    Statistic(
        name="gpu_environment",
        title="Power, temperature and errors of GPUs",
        unit="W, kWh, degrees C, hours",
        function=gpu_environment,
        needs={"environment": ()},
        by=tuple(GPU_HOUR_DIMENSIONS),
    ),
    Statistic(
        name="gpu_power_by_use",
        title="Power of GPUs by use",
        unit="W",
        function=gpu_power_by_use,
        needs={"environment": ("power_w",), "machine_usage": ("gpu_frac",)},
        by=("cluster", "machine", "date", "month"),
    ),
    Statistic(
        name="group_recurrence",
        title="Recurrence of groups",
        unit="jobs",
        function=group_recurrence,
        needs={"jobs": ("group",)},
        by=_JOB,
    ),
    Statistic(
        name="user_concentration",
        title="Concentration on users",
        unit="tasks, GPU-hours",
        function=user_concentration,
        needs={"jobs": ("user",)},
        by=_JOB,
    ),
    Statistic(
        name="machine_classes",
        title="Classes of machines",
        unit="machines, GPUs",
        function=machine_classes,
        needs={"machines": ()},
        by=tuple(MACHINE_DIMENSIONS),
    ),
    Statistic(
        name="capacity",
        title="GPUs over dates",
        unit="GPUs",
        function=capacity,
        needs={"capacity": ()},
        by=tuple(CAPACITY_DIMENSIONS),
    ),
    Statistic(name="files", title="Published files that were read", unit="bytes, rows", function=files, adds_up=False),
)

STATISTICS: Final[dict[str, Statistic]] = {statistic.name: statistic for statistic in _ALL}
"""All statistics by name."""
