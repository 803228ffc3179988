"""What jobs alike were seen to need: bounds by role and request, and how they hold the answers of a usage model.

Pure; the bounds are counted in training (`pipelines.training.alike`) and travel in the card.
Called by `modelserve.predictor` and `modelserve.calls.live`.
"""

from collections.abc import Mapping, Sequence
from typing import Annotated, Final

import numpy as np
from pydantic import BaseModel, ConfigDict, Field

from scheduler_core.types import FloatArray, IntArray, Job, Request

HARD: Final = frozenset({"mem_gib", "gpu_mem_gib"})
"""Targets below whose need a job dies: the larger of bound and model holds."""

DIGITS: Final = 3
"""Significant digits to which two requests have to agree: 29.296875 GiB and 29.3 GiB are the same request."""

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
        """What a job has in common with them."""
        return alike_key(self.role, (self.cpu_cores, self.mem_gib, self.gpus))


def alike_key(role: str, request: Sequence[float | None]) -> Key:
    """Return what jobs alike have in common: their role, and their request to `DIGITS` significant digits.

    >>> alike_key("worker", (6.0, 29.296875, None))
    ('worker', '6', '29.3', 'nan')
    """
    cpu_cores, mem_gib, gpus = (f"{np.nan if value is None else value:.{DIGITS}g}" for value in request)
    return (role, cpu_cores, mem_gib, gpus)


def held(
    found: Mapping[Key, Alike], jobs: Sequence[Job], use: Mapping[str, FloatArray], runs: IntArray
) -> tuple[dict[str, FloatArray], IntArray]:
    """Hold a usage model's answers (n,) by what jobs alike were seen to need; return them and the evidence anew.

    Where nobody alike was measured often enough, nothing is known: NaN, no runs, and the request will stand. CPU and
    GPU are the bounds themselves; of the memories the larger of bound and model.

    Parameters
    ----------
    found
        Jobs alike by key.
    use
        Upper quantile of use by target, as the model answers it.
    runs
        Measured runs behind each answer.
    """
    bounds = [found.get(_key_of(job.role, job.request)) for job in jobs]
    answers = {}
    for target, said in use.items():
        bound = np.array([np.nan if each is None else each.needs.get(target, np.nan) for each in bounds])
        answers[target] = np.where(np.isnan(bound), np.nan, np.fmax(bound, said)) if target in HARD else bound
    counted = np.array([0 if each is None else max(each.groups, seen) for each, seen in zip(bounds, runs, strict=True)])
    return answers, counted.astype(np.int64)


def _key_of(role: str, request: Request) -> Key:
    return alike_key(role, request.row())
