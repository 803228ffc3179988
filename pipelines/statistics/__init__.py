"""Statistics of a trace: each is one function that returns its query; charts are in `pipelines.report`."""

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
from pipelines.statistics.machines import (
    capacity,
    files,
    gpu_environment,
    gpu_power_by_use,
    machine_classes,
    utilisation_by_hour,
    utilisation_by_machine_type,
)
from pipelines.statistics.outcomes import gpu_hours_by_status, group_recurrence, status_counts, user_concentration
from pipelines.statistics.statistic import Answer, Statistic, cluster_note
from pipelines.statistics.times import arrivals_by_hour, arrivals_by_weekday, jct, period, queueing_delay, run_time

__all__ = ["STATISTICS", "Answer", "Statistic", "cluster_note"]

STATISTICS: Final[dict[str, Statistic]] = {
    each.name: each
    for each in (
        *(period, run_time, queueing_delay, jct, arrivals_by_hour, arrivals_by_weekday, sizes, request_fragmentation),
        *(status_counts, gpu_hours_by_status, over_claim, over_claim_as_published, request_and_use, use),
        *(resources_told, utilisation_by_hour, utilisation_by_machine_type, gpu_environment, gpu_power_by_use),
        *(group_recurrence, user_concentration, machine_classes, capacity, files),
    )
}
"""All statistics by name."""
