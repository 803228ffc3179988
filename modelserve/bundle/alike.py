"""Bounds on peak use from measured runs: of the job's own group, or of similar jobs (same role and request).

Pure; the bounds are counted in training (`pipelines.models.alike`) and stored in the card. Called by
`modelserve.bundle.predictor` and `modelserve.calls.recommendations`.
"""

from collections.abc import Mapping, Sequence
from typing import Annotated, Final

import numpy as np
from pydantic import BaseModel, ConfigDict, Field

from scheduler_core.types import FloatArray, IntArray, Job, Request

HARD: Final = frozenset({"mem_gib", "gpu_mem_gib"})
"""Targets where too little kills the job: the larger of bound and prediction is used."""

DIGITS: Final = 3
"""Significant digits of a request that are compared: 29.296875 GiB and 29.3 GiB are the same request."""

PARAMETER_SERVER: Final = "ps"
"""The role whose measurements are those of its workers, and so do not describe its own use."""

OWN_RUNS: Final = 20
"""Measured runs of a job's own group and role from which on the model's prediction is used."""

ROOM: Final[Mapping[str, float]] = {"cpu_cores": 1.1, "mem_gib": 1.5, "gpus": 1.0, "gpu_mem_gib": 1.3}
"""Factor on that prediction by target: larger for memory, where too little kills the job."""

Amount = Annotated[float, Field(ge=0.0, allow_inf_nan=False)]
Key = tuple[str, str, str, str]


class Alike(BaseModel):
    """Measured jobs of one role and one request: how many groups they were of, and what they need at most.

    `needs` are upper bounds per instance, by usage target; `groups` counts the groups of jobs behind them, since runs
    of one group say the same thing again. A resource the trace lacks is null.
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
        """The key shared by similar jobs."""
        return alike_key(self.role, (self.cpu_cores, self.mem_gib, self.gpus))


def alike_key(role: str, request: Sequence[float | None]) -> Key:
    """Return the key of similar jobs: their role, and their request to `DIGITS` significant digits.

    >>> alike_key("worker", (6.0, 29.296875, None))
    ('worker', '6', '29.3', 'nan')
    """
    cpu_cores, mem_gib, gpus = (f"{np.nan if value is None else value:.{DIGITS}g}" for value in request)
    return (role, cpu_cores, mem_gib, gpus)


def held(
    found: Mapping[Key, Alike], jobs: Sequence[Job], use: Mapping[str, FloatArray], own_runs: IntArray
) -> tuple[dict[str, FloatArray], IntArray]:
    """Return upper bounds on the use of jobs (n), and the number of measured runs or groups behind each.

    If a job's own group and role have enough measured runs, the bound is the prediction times `ROOM`. Otherwise it is
    the bound of similar jobs; for memory, the larger of that and the prediction. NaN if neither is known: the request
    is then kept.

    Parameters
    ----------
    found
        Bounds of similar jobs by key.
    use
        Predicted upper quantile of use by target.
    own_runs
        Measured runs of each job's own group and role.
    """
    bounds = [found.get(_key_of(job.role, job.request)) for job in jobs]
    own_runs = np.where([job.role == PARAMETER_SERVER for job in jobs], 0, own_runs)
    known = own_runs >= OWN_RUNS
    answers = {}
    for target, predicted in use.items():
        bound = np.array([np.nan if each is None else each.needs.get(target, np.nan) for each in bounds])
        alike = np.where(np.isnan(bound), np.nan, np.fmax(bound, predicted)) if target in HARD else bound
        answers[target] = np.where(known, predicted * ROOM[target], alike)
    groups = np.array([0 if each is None else each.groups for each in bounds], dtype=np.int64)
    return answers, np.where(known, own_runs, np.maximum(groups, own_runs)).astype(np.int64)


def _key_of(role: str, request: Request) -> Key:
    return alike_key(role, request.row())
