"""What measured jobs of one role and request need at most: conformal bounds over groups, cell by cell.

Counts and ranks only; no trees, and nothing is judged here.
Called by `training.usage` and `experiments.crossfit`.

References: Vovk, Lindsay, Nouretdinov, Gammerman, "Mondrian Confidence Machine" (2003).
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

import numpy as np
import polars as pl

from modelserve.bundle.alike import PARAMETER_SERVER, Alike, alike_key
from pipelines.models.conformal import static_offset
from pipelines.models.metrics import FloatArray
from pipelines.models.splits import leak_key

_REQUESTS: Final = {"cpu_cores": "req_cpu_cores", "mem_gib": "req_mem_gib", "gpus": "req_gpus"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Bound:
    """How one target is bounded: the rank over the measured needs, and the factor that the value there is taken by.

    A factor below one accepts that the jobs at the bound run longer by its inverse.
    """

    level: float
    factor: float


BOUNDS: Final[Mapping[str, Bound]] = {
    "cpu_cores": Bound(level=0.99, factor=1.1),
    "mem_gib": Bound(level=1.0, factor=1.75),
    "gpus": Bound(level=0.95, factor=1.0 / 1.05),
    "gpu_mem_gib": Bound(level=1.0, factor=1.3),
}
"""Memories are hard, so the largest need counts, with room above; GPUs are scarce and soft, so a stretch of up to a
twentieth is accepted there, and one job in twenty beyond it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AlikeRecipe:
    """How jobs alike are bounded: `least_groups` of measured jobs before anything is said of them."""

    least_groups: int = 50
    bounds: Mapping[str, Bound] = field(default_factory=lambda: dict(BOUNDS))


def alike_of(jobs: pl.DataFrame, columns: Mapping[str, str], recipe: AlikeRecipe) -> tuple[Alike, ...]:
    """Return the bounds of every role and request that enough groups were measured with, most groups first.

    A need is the use, at most the request: what a job used beyond its request it got anyway.

    Parameters
    ----------
    jobs
        Measured jobs with their use (n rows).
    columns
        Target to the column of its use.
    """
    kept = jobs.filter(pl.col("role") != PARAMETER_SERVER)
    if kept.is_empty():
        return ()
    requests = kept.select(pl.col(name).cast(pl.Float64) for name in _REQUESTS.values()).rows()
    keys = [alike_key(role, row) for role, row in zip(kept["role"], requests, strict=True)]
    cells, of_cell = np.unique(["\t".join(key) for key in keys], return_inverse=True)
    groups = np.unique(leak_key(kept).to_numpy(), return_inverse=True)[1]
    needs = {target: _need(kept, target, column) for target, column in columns.items()}
    found = []
    for cell in range(len(cells)):
        rows = np.flatnonzero(of_cell == cell)
        count = len(np.unique(groups[rows]))
        if count < recipe.least_groups:
            continue
        said = {target: _bound(values[rows], recipe.bounds[target]) for target, values in needs.items()}
        first = dict(zip(_REQUESTS, requests[rows[0]], strict=True))
        known = {target: value for target, value in said.items() if value is not None}
        found.append(Alike(role=kept["role"][int(rows[0])], **first, groups=count, needs=known))
    return tuple(sorted(found, key=lambda each: (-each.groups, each.key)))


def _need(jobs: pl.DataFrame, target: str, column: str) -> FloatArray:
    if column not in jobs.columns:
        return np.full(jobs.height, np.nan)
    used = jobs[column].cast(pl.Float64).fill_null(float("nan")).to_numpy()
    if target not in _REQUESTS:
        return np.asarray(used, dtype=np.float64)
    asked = jobs[_REQUESTS[target]].cast(pl.Float64).fill_null(float("nan")).to_numpy()
    return np.where(np.isnan(used), np.nan, np.fmin(used, asked))


def _bound(needs: FloatArray, bound: Bound) -> float | None:
    measured = needs[~np.isnan(needs)]
    if not len(measured):
        return None
    return static_offset(measured, np.zeros(len(measured)), bound.level) * bound.factor
