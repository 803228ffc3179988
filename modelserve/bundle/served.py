"""A model as it answers: a bundle, its history, the weights that feedback changes, and what its trees' outputs mean.

The run time is the trees' output, combined with other forecasts, then calibrated.
"""

import json
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from features.contract import RESPONSE_CONTRACT
from features.online import JobAsked, OnlineHistory
from features.references import HISTORY_FORECASTS
from features.rows import RowBuilder, Rows
from features.vocabulary import ROLE_WHOLE_JOB
from modelserve.bundle.bundle import Bundle
from modelserve.bundle.card import FITTED, RESPONSE, RUNTIME_TARGET, TYPICAL, TYPICAL_JOBS, Card
from modelserve.bundle.combination import Combination, forecasts_of
from modelserve.bundle.trees.compiled import tree_outputs
from modelserve.errors import BundleError
from scheduler_core.types import FloatArray, IntArray, RunTimes

__all__ = ["QUANTILE_NAMES", "Scored", "ServedModel", "calibrated_run_times", "five_resources", "warm"]

QUANTILE_NAMES: Final = {0.5: "p50", 0.9: "p90"}
"""The quantiles of run time that are served, with their names in predictions and in `Card.offsets`."""

RESPONSES: Final = RowBuilder.of(RESPONSE_CONTRACT, relative=False)
"""Builds the rows of response models."""


@dataclass(slots=True)
class Learning:
    """The combination of a served model: as trained (`start`), and per cluster after the change number `seq`.

    Each cluster learns from its own jobs only. `of_cluster` is replaced in one assignment; calls read it once.
    """

    start: Combination | None
    of_cluster: Mapping[str, Combination] = field(default_factory=dict)
    seq: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Scored:
    """Feature rows that one model received for n jobs of one call; `model` is its reference (`<name>@<version>`).

    `shift_log_s` (n, 2) is what the combination adds to the trees' answer (`modelserve.bundle.combination`), 0 for a
    model without one. `forecasts` (n, members, 2) are those of the combination's members, `outputs` those of
    `ServedModel.outputs`; both are None without a combination.
    """

    model: str
    rows: Rows
    shift_log_s: FloatArray
    forecasts: FloatArray | None = None
    outputs: Mapping[str, FloatArray] | None = None

    @property
    def base_log_s(self) -> FloatArray:
        """What is added to the trees' output (n, 2): the reference and the shift, in log seconds."""
        return self.rows.reference_log_s + self.shift_log_s


@dataclass(frozen=True, slots=True, kw_only=True)
class ServedModel:
    """One loaded version of a model.

    `reference` is the name and version of the model in responses, such as `runtime.pai.ctr@7`.
    `learning` holds the weights of a combination, which feedback changes.
    `history` may be shared with other models of the trace. The bundle keeps none of its own history, to save memory.
    """

    bundle: Bundle
    reference: str
    rows: RowBuilder
    history: OnlineHistory
    learning: Learning

    @classmethod
    def of(cls, bundle: Bundle, history: OnlineHistory) -> "ServedModel":
        """Make a model of a bundle; `history` is what its features come from."""
        rows = RowBuilder.of(bundle.contract, relative=bundle.card.relative)
        stored = bundle.card.combination
        start = None if stored is None else Combination.of(stored, rows=bundle.card.rows)
        return cls(bundle=bundle, reference=bundle.reference, rows=rows, history=history, learning=Learning(start))

    def learn(self, scored: Callable[[str, int, int], Iterable[Any]], upto: int) -> None:  # rows of finished jobs
        """Update the weights with the jobs that this model scored and that finished up to the change number `upto`."""
        learning, start = self.learning, self.learning.start
        if start is None or learning.seq >= upto:
            return
        learnt = dict(learning.of_cluster)
        for job in scored(self.reference, learning.seq, upto):
            forecasts = np.array(json.loads(job.forecasts), dtype=np.float64)
            if forecasts.shape == (len(start.members), 2) and np.isfinite(forecasts).all():
                learnt[job.cluster] = learnt.get(job.cluster, start).learnt(forecasts, math.log(max(job.run_s, 1.0)))
        learning.of_cluster, learning.seq = learnt, upto

    def look(self, asked: Sequence[JobAsked]) -> Scored:
        """Build the feature rows of jobs, and combine the answer with other forecasts."""
        rows, start = self.rows.rows(asked, self.history), self.learning.start
        shift_log_s, forecasts, outputs = np.zeros((len(asked), 2)), None, None
        if start is not None:
            outputs = self.outputs(rows.matrix)
            raw = outputs[RUNTIME_TARGET]
            forest = self.bundle.quantile_forest
            forecasts = forecasts_of(
                start.members,
                xgboost=raw + rows.reference_log_s,
                forest=None if forest is None else forest.rows(rows.matrix) + rows.reference_log_s[:, :1],
                reference_log_s=rows.reference_log_s,
                history_log_s=rows.history_log_s,
                typical_s=self.bundle.card.typical_s,
            )
            shift_log_s = self._combined(asked, start, forecasts) - (raw + rows.reference_log_s)
        return Scored(model=self.reference, rows=rows, shift_log_s=shift_log_s, forecasts=forecasts, outputs=outputs)

    def _combined(self, asked: Sequence[JobAsked], start: Combination, forecasts: FloatArray) -> FloatArray:
        """Return the combination of each job's forecasts (n, 2), by the weights of its cluster."""
        learnt, combined = self.learning.of_cluster, np.empty((len(asked), 2))
        for cluster in {job.cluster for job in asked}:
            mine = [i for i, job in enumerate(asked) if job.cluster == cluster]
            combined[mine] = learnt.get(cluster or "", start).combined(forecasts[mine])
        return combined

    def outputs(self, matrix: npt.NDArray[np.float32]) -> dict[str, FloatArray]:
        """Return the outputs (n, outputs) of every target's trees for a matrix (n, k), before calibration."""
        return {target: self.margins(target, matrix) for target in self.bundle.card.targets}

    def changed(self, asked: Sequence[JobAsked], seen: Scored, rows: IntArray, requests: FloatArray) -> FloatArray:
        """Return the outputs (m, outputs) under other requests (m, 3), before calibration; row i is of job `rows[i]`.

        Those for the own requests, of the rows `seen`, change by as much as the response model's. Without one, they are
        those of the trees.
        """
        if not self.bundle.card.responds:
            return self.margins(RUNTIME_TARGET, self.rows.with_requests(seen.rows.matrix, asked, rows, requests))
        known = RESPONSES.rows(asked, self.history).matrix
        given = RESPONSES.with_requests(known, asked, rows, requests)
        before, after = (self.margins(RESPONSE, five_resources(each)) for each in (known, given))
        return self.scored(seen)[RUNTIME_TARGET][rows] + (after - before[rows])

    def margins(self, target: str, matrix: npt.NDArray[np.float32]) -> npt.NDArray[np.float64]:
        """Return the outputs (n, outputs) of a target's trees for a matrix (n, k), before calibration."""
        return tree_outputs(self.bundle.forests[target], matrix)

    def run_times(self, seen: Scored) -> RunTimes:
        """Return the run times of jobs in seconds, with their own requests."""
        return calibrated_run_times(self.bundle.card, self.scored(seen)[RUNTIME_TARGET], seen.base_log_s)

    def use(self, seen: Scored) -> dict[str, FloatArray]:
        """Return upper bounds (n,) on the use of jobs per instance by target."""
        card = self.bundle.card
        return {target: calibrated_use(card, target, raw) for target, raw in self.scored(seen).items()}

    def scored(self, seen: Scored) -> Mapping[str, FloatArray]:
        """Return the outputs (n, outputs) of every target's trees for jobs, before calibration."""
        return self.outputs(seen.rows.matrix) if seen.outputs is None else seen.outputs

    def basis(self, counts: Sequence[int]) -> tuple[str, int]:
        """Return the source of a run time, as `basis_of`, given its numbers of ended jobs (3,)."""
        start = self.learning.start
        return basis_of(None if start is None else start.members, counts, self.bundle.card.rows)


def warm(model: ServedModel) -> None:
    """Predict a made-up job, so that the first call does not wait for compilation."""
    card = model.bundle.card
    job = JobAsked(
        trace=card.trace, cluster=None, job_id="warm", role=ROLE_WHOLE_JOB, user=None, vc=None, group=None,
        workload=None, task_type=card.task_type, gpu_type=None, submit_us=round(card.until.timestamp() * 1e6),
        instances=1, req_cpu_cores=1.0, req_mem_gib=1.0, req_gpus=1.0,
    )  # fmt: skip
    look = model.look([job])
    if card.kind == "runtime":
        model.changed([job], look, np.zeros(1, dtype=np.int64), np.ones((1, 3)))
    matrix = model.rows.with_requests(look.rows.matrix, [job], np.zeros(1, dtype=np.int64), np.ones((1, 3)))
    model.history.measured_runs(job)
    for target, answer in model.outputs(matrix).items():
        if not np.isfinite(answer).all():
            raise BundleError(f"{model.reference}/{target}: a new job is answered {answer}, expected numbers")


def basis_of(members: Sequence[str] | None, counts: Sequence[int], rows: int) -> tuple[str, int]:
    """Return the source of a run time, and the number of ended jobs behind it.

    `members` are those of the model's combination, None if its trees answer alone; `counts` (3,) are the numbers of
    ended jobs behind each of `HISTORY_FORECASTS`, `rows` that of the jobs trained on.

    >>> basis_of(("reference", "similar_jobs"), (0, 5, 20), 99), basis_of(("newest_jobs",), (3, 5, 20), 99)
    (('same_gpus', 5), ('newest_jobs', 20))
    """
    if members is None or not FITTED.isdisjoint(members):
        return "model", counts[0]
    if TYPICAL in members:
        return TYPICAL, min(rows, TYPICAL_JOBS)
    names = list(HISTORY_FORECASTS)
    first = names.index(members[0]) if len(members) == 1 and members[0] in names else 0
    known = ((name, count) for name, count in list(zip(names, counts, strict=True))[first:] if count)
    return next(known, ("prior", 0))


def five_resources(matrix: npt.NDArray[np.float32]) -> npt.NDArray[np.float32]:
    """Return a response model's inputs (n, 5) from features by `RESPONSE_CONTRACT` (n, 7): known use of group or user.

    >>> five_resources(np.array([[6, 29, 0.5, np.nan, 2, 7, 9]], np.float32)).tolist()
    [[6.0, 29.0, 0.5, 7.0, 2.0]]
    """
    requests, of_group, of_user = np.split(matrix, (3, 5), axis=1)
    return np.hstack([requests, np.where(np.isnan(of_group), of_user, of_group)])


def calibrated_run_times(card: Card, raw: FloatArray, reference_log_s: FloatArray) -> RunTimes:
    """Convert a booster's outputs (n, quantiles) and reference run times (n, 2) from log units to seconds.

    Quantiles are sorted; a quantile without an output of the booster is NaN.
    """
    served = [level for level in QUANTILE_NAMES if level in card.quantiles]
    columns = [card.quantiles.index(level) for level in served]
    offsets = [card.offsets.get(QUANTILE_NAMES[level], 0.0) for level in served]
    seconds = np.exp(np.sort((raw + reference_log_s)[:, columns] + offsets, axis=1))
    found = {QUANTILE_NAMES[level]: seconds[:, i] for i, level in enumerate(served)}
    unknown = np.full(len(raw), np.nan)
    return RunTimes(p50=found.get("p50", unknown), p90=found.get("p90", unknown))


def calibrated_use(card: Card, target: str, raw: FloatArray) -> FloatArray:
    """Convert the outputs (n, 1) of a target's booster from log1p units into use (n,), at least 0."""
    use: FloatArray = np.maximum(np.expm1(raw[:, 0] + card.offsets.get(target, 0.0)), 0.0)
    return use
