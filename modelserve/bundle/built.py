"""Features of the jobs of one round, built once for the models that ask, and the rows of the jobs' candidates.

What a feature is, is `features`' to say; no model is asked here. Called by `modelserve.bundle.predictor`.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from operator import is_
from typing import Final

import numpy as np
import numpy.typing as npt
import polars as pl

from features.build import build, with_requests
from features.contract import FeatureContract
from features.history import History
from features.reference import REFERENCE_FEATURES, Referenced, made_relative, reference_log_s
from features.sets import FEATURES
from modelserve.bundle.jobs import jobs_frame
from scheduler_core.types import FloatArray, IntArray, Job

KEPT_JOBS: Final = 100_000
"""Of how many jobs features are kept: they take up to 160 MiB."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Built:
    """Jobs (n), as the canonical columns (n rows) and as the features built of them so far (n rows)."""

    jobs: Sequence[Job]
    history: History
    frame: pl.DataFrame
    features: pl.DataFrame

    @classmethod
    def of(cls, jobs: Sequence[Job], history: History) -> "Built":
        """Return jobs of which no feature is built yet."""
        return cls(jobs=jobs, history=history, frame=jobs_frame(jobs, history), features=pl.DataFrame())

    def with_features(self, names: Sequence[str]) -> "Built":
        """Build those that are still missing: each is told from the job and the history alone."""
        known = set(self.features.columns)
        missing = [name for name in dict.fromkeys(names) if name not in known]
        if not missing:
            return self
        built = build(self.frame, self.history, missing)
        return replace(self, features=self.features.hstack(built) if self.features.width else built)

    def referenced(self, names: Sequence[str], *, relative: bool) -> Referenced:
        """Return what `features.reference.build_referenced` does; only what is missing is built."""
        if not relative:
            plain = self.with_features(names).features.select(names)
            return Referenced(features=plain, plain=plain, reference_log_s=np.zeros((len(self.jobs), 2)))
        built = self.with_features((*names, *REFERENCE_FEATURES)).features
        against, plain = reference_log_s(built), built.select(names)
        return Referenced(features=made_relative(plain, against[:, 0]), plain=plain, reference_log_s=against)

    def is_of(self, jobs: Sequence[Job], history: History) -> bool:
        """Tell whether these are those very jobs, in that order, over that very history; all of them are immutable."""
        return self.history is history and len(self.jobs) == len(jobs) and all(map(is_, self.jobs, jobs))


@dataclass(slots=True)
class LastBuilt:
    """What was built for one question of a round, until the next question takes it: it saves time and decides nothing.

    Threads may share it: the worst that can come of it is that something is built twice.
    """

    kept: tuple[Built, ...] = field(default=())

    def keep(self, built: Sequence[Built]) -> None:
        """Keep these and nothing else, unless they are too many."""
        self.kept = tuple(built) if sum(len(each.jobs) for each in built) <= KEPT_JOBS else ()

    def take(self, jobs: Sequence[Job], history: History) -> Built:
        """Return jobs with what is kept of them, and keep it no longer."""
        found = next((each for each in self.kept if each.is_of(jobs, history)), None)
        if found is None:
            return Built.of(jobs, history)
        self.kept = tuple(each for each in self.kept if each is not found)
        return found


def candidate_rows(
    contract: FeatureContract, features: pl.DataFrame, frame: pl.DataFrame, rows: IntArray, requests: FloatArray
) -> npt.NDArray[np.float32]:
    """Encode counterfactual requests (m, k): row i is job `rows[i]` of `frame` as if it had asked for `requests[i]`.

    `features` are those of the jobs as a model sees them. The same as the contract's encoding of `with_requests`, which
    takes longer: here each job is encoded once, and of its candidates what derives from the request.
    """
    changed = [name for name in contract.names if FEATURES[name].from_request]
    matrix: npt.NDArray[np.float32] = contract.encode(features)[rows]
    if changed:
        read = sorted({column for name in changed for column in FEATURES[name].needs})
        asked = with_requests(features.select(changed), frame.select(read), rows, requests)
        matrix[:, [contract.names.index(name) for name in changed]] = asked.to_numpy()
    return matrix
