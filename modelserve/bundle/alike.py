"""Upper bounds on the peak use of similar jobs, stored in a usage model's card."""

from collections.abc import Mapping, Sequence
from typing import Annotated, Final

import numpy as np
from pydantic import BaseModel, ConfigDict, Field

from scheduler_core.types import FloatArray, IntArray, Job

__all__ = ["OWN_RUNS", "PARAMETER_SERVER", "SIMILAR_ROOM", "Alike", "alike_key", "held"]

HARD: Final = ("mem_gib", "gpu_mem_gib")
"""Usage targets whose allocation kills the job if too small. For them `held` takes the larger of two bounds."""

DIGITS: Final = 3
"""Number of significant digits in which requests must agree to be similar: 29.296875 GiB and 29.3 GiB are similar."""

PARAMETER_SERVER: Final = "ps"
"""Role of parameter servers. Traces report the use of workers for them, so their measured runs are not counted."""

OWN_RUNS: Final = 10
"""Minimum number of measured runs of a job's own group and role; with fewer, `held` uses the bound of similar jobs."""

MANY_RUNS: Final = 20
"""Number of a group's own runs from which its memory margin is `ROOM`; with fewer it is `FEW_ROOM`."""
FEW_ROOM: Final = 2.0
"""Factor on the memory of a group with few runs: its largest peak may be far below later peaks.

At 10 runs it kills fewer runs than `ROOM` at 20 runs: 0.5 % against 0.8 % if peaks are lognormal with a spread of at
most 0.5, and 1.0 % against 1.3 % if a twentieth of the runs peaks 2.5 times as high (100,000 draws each).
"""

ROOM: Final[Mapping[str, float]] = {"cpu_cores": 1.1, "mem_gib": 1.5, "gpus": 1.0, "gpu_mem_gib": 1.3}
SIMILAR_ROOM: Final[Mapping[str, float]] = {"cpu_cores": 1.1, "mem_gib": 1.75, "gpus": 1.0 / 1.05, "gpu_mem_gib": 1.3}
"""Factors on an upper quantile of use that give its bound: of the job's own group, and of similar jobs, by target.

A user's `*_margin` of the `ShrinkPolicy` is added. A job over its memory is killed, so memory has the largest factor.
With too little GPU compute a job only slows down, and GPUs are scarce, so similar jobs may slow down by up to 5 %.
"""

Amount = Annotated[float, Field(ge=0.0, allow_inf_nan=False)]
Key = tuple[str, str, str, str]


class Alike(BaseModel):
    """Upper bounds on the use of similar jobs, which have the same role and request.

    `needs` holds the upper bound per instance of each usage target. `groups` counts the groups of these jobs, not their
    runs, because runs of one group use about the same. A resource is null if its request was not recorded.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    role: Annotated[str, Field(min_length=1, max_length=256)]
    cpu_cores: Amount | None
    mem_gib: Amount | None
    gpus: Amount | None
    groups: int = Field(ge=1)
    needs: dict[str, Amount]

    @property
    def key(self) -> Key:
        """The key that these similar jobs share."""
        return alike_key(self.role, (self.cpu_cores, self.mem_gib, self.gpus))


def alike_key(role: str, request: Sequence[float | None]) -> Key:
    """Return the key that similar jobs share: the role, and the request rounded to `DIGITS` significant digits.

    >>> alike_key("worker", (6.0, 29.296875, None))
    ('worker', '6', '29.3', 'nan')
    """
    cpu_cores, mem_gib, gpus = (f"{np.nan if value is None else value:.{DIGITS}g}" for value in request)
    return (role, cpu_cores, mem_gib, gpus)


def held(
    found: Mapping[Key, Alike],
    jobs: Sequence[Job],
    use: Mapping[str, FloatArray],
    runs: IntArray,
    extremes: FloatArray | None = None,
) -> tuple[dict[str, FloatArray], IntArray]:
    """Return by target upper bounds (n,) on the use of jobs, and the number of measured runs or groups behind each.

    If a job's own group and role have at least `OWN_RUNS` measured runs, the bound is the predicted use times `ROOM`
    (memory with less than `MANY_RUNS` runs: `FEW_ROOM`). A margin alone does not raise a CPU request: if the predicted
    CPU use is at most the request, so is its bound. With fewer runs the bound is that of similar jobs, for memory at
    least the prediction. It is NaN if no similar job was measured; the request is then kept. A bound of memory is at
    least the largest measured peak.

    `found` holds the bounds of similar jobs by `alike_key`, `use` the predicted upper quantile of use (n,) by
    target. `runs` (n,) counts the measured runs of each job's own group and role, `extremes` (n, 5) are as in
    `features.rows`: the largest peaks of `HARD` first.
    """
    bounds = [found.get(alike_key(job.role, job.request.row())) for job in jobs]
    own_runs = np.where([job.role == PARAMETER_SERVER for job in jobs], 0, runs)
    peaks = {} if extremes is None else dict(zip(HARD, extremes.T, strict=False))
    known = own_runs >= OWN_RUNS
    requested = np.array([job.request.cpu_cores for job in jobs])
    answers = {}
    for target, predicted in use.items():
        bound = np.array([np.nan if each is None else each.needs.get(target, np.nan) for each in bounds])
        peak = peaks.get(target, np.full(len(jobs), np.nan))
        alike = np.where(np.isnan(bound), np.nan, np.fmax(bound, predicted)) if target in HARD else bound
        room = np.where(own_runs < MANY_RUNS, FEW_ROOM, ROOM[target]) if target in HARD else ROOM[target]
        own = predicted * room
        if target == "cpu_cores":
            own = np.where(predicted <= requested, np.minimum(own, requested), own)
        answers[target] = np.where(known, own, alike)
        answers[target] = np.where(np.isnan(answers[target]), np.nan, np.fmax(answers[target], peak))
    groups = np.array([0 if each is None else each.groups for each in bounds], dtype=np.int64)
    return answers, np.where(known, own_runs, np.maximum(groups, own_runs)).astype(np.int64)
