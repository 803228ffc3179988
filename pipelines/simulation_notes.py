"""What every reader of a simulation's figures has to know of its jobs, in sentences.

What has to be known of its settings is said by those. Called by `pipelines.simulation.simulate`.
"""

from datetime import UTC, datetime

import numpy as np

from pipelines.simulation.advice import REQUESTED, Advice
from pipelines.simulation.engine.arrivals import SECONDS_PER_HOUR
from pipelines.simulation.engine.workload import ANY_GPU_TYPE
from pipelines.simulation.job_pool import Pool
from pipelines.simulation.simulation_settings import SimulationSettings
from pipelines.simulation.workloads import Gangs
from pipelines.starts import predicted_times
from scheduler_core.types import RESOURCES, FloatArray


def assumed_note(pool: Pool) -> str:
    """Say for how many jobs the devices' memory is a guess."""
    return (
        f"{pool.known.count(False)} of {len(pool.jobs)} jobs ran on devices of unknown memory, taken as "
        f"{pool.assumed_device_mem_gib:g} GiB"
    )


def window_notes(pool: Pool, at_s: FloatArray, settings: SimulationSettings) -> list[str]:
    """Say how many of the recorded jobs come before the horizon."""
    come = int((at_s <= settings.horizon_s).sum())
    if come == len(at_s):
        return []
    first = datetime.fromtimestamp(pool.jobs[0].job.submit_ts, UTC)
    return [
        f"{come} of {len(at_s)} jobs within {settings.horizon_s / SECONDS_PER_HOUR:g} h of the first submission "
        f"({first:%Y-%m-%d %H:%M} UTC); --since moves the start"
    ]


def recorded_notes(pool: Pool, gangs: Gangs) -> list[str]:
    """Say what is not asked for, what was divided, and whose use nobody knows."""
    notes = []
    unasked = [name for at, name in enumerate(RESOURCES) if not gangs.request_units[:, at].any()]
    if unasked:
        rest = [name for name in RESOURCES if name not in unasked]
        notes.append(f"no job asks for {' or '.join(unasked)}: {' and '.join(rest)} alone are allocated")
    if divided := int((gangs.pieces > 1).sum()):
        notes.append(f"{divided} jobs ask for more GPUs than a machine has: divided into equal instances")
    unmeasured = pool.measured.count(False)
    if unmeasured:
        notes.append(f"the use of {unmeasured} of {len(pool.jobs)} jobs is unknown: they keep their requests")
    if any(pool.measured) and not all(pool.known):
        notes.append(assumed_note(pool))
    return notes


def type_notes(gangs: Gangs, settings: SimulationSettings) -> list[str]:
    """Say where jobs name GPU types and the machines have them, but gangs run on any."""
    typed = int((gangs.gpu_type != ANY_GPU_TYPE).sum())
    if settings.discipline.match_gpu_type or not typed or not any(m.gpu_type for m in settings.cluster.machines):
        return []
    return [
        f"GPU types are not matched: {typed} of {len(gangs.gpu_type)} jobs name theirs, and run on any machine; "
        "--match-gpu-type holds them to it"
    ]


def prediction_notes(given: Advice, settings: SimulationSettings) -> list[str]:
    """Say how many jobs go without a predicted run time, where one is looked at."""
    answers = given.get(REQUESTED)
    if settings.needs_predictions is None or answers is None:
        return []
    unknown = int(np.isnan(predicted_times(answers)).sum())
    return [f"{unknown} of {len(answers)} jobs have no predicted run time: they go last"] if unknown else []
