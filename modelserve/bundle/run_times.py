"""From the outputs of a run-time model's trees to run times: combination, calibration, response to another request."""

from collections.abc import Sequence
from typing import Final

import numpy as np
import numpy.typing as npt
import polars as pl

from features.references import HISTORY_FORECASTS, Referenced, build_referenced
from modelserve.bundle.boosters import raw_outputs
from modelserve.bundle.bundle import Bundle
from modelserve.bundle.card import FITTED, RESPONSE, RUNTIME_TARGET, TYPICAL, TYPICAL_JOBS, Card
from modelserve.bundle.combination import Combination, forecasts_of
from modelserve.bundle.trees.compiled import tree_outputs
from scheduler_core.types import FloatArray, IntArray, RunTimes

__all__ = [
    "QUANTILE_NAMES", "basis_of", "calibrated_run_times", "combination_of", "five_resources",
    "member_forecasts", "response_log_s",
]  # fmt: skip

QUANTILE_NAMES: Final = {0.5: "p50", 0.9: "p90"}
"""The quantiles of run time that are served, with their names in predictions and in `Card.offsets`."""


def run_time_features(bundle: Bundle, frame: pl.DataFrame) -> Referenced:
    """Build the features of a run-time model, and the reference run times, for the jobs of a frame (n rows)."""
    return build_referenced(frame, bundle.history, bundle.contract.names, relative=bundle.card.relative)


def run_time_quantiles(bundle: Bundle, built: Referenced) -> RunTimes:
    """Predict run times in seconds of n jobs: combined and calibrated in log units, then p50 and p90 in order."""
    raw = outputs_of(bundle, RUNTIME_TARGET, bundle.contract.encode(built.features))
    return calibrated_run_times(bundle.card, raw, base_log_s(bundle, built, raw))


def base_log_s(bundle: Bundle, built: Referenced, raw: FloatArray) -> FloatArray:
    """Return the sum to add to the trees' outputs `raw` (n, 2): the reference, and the shift of a combination."""
    combination = combination_of(bundle)
    if combination is None:
        return built.reference_log_s
    forecasts = member_forecasts(
        bundle,
        bundle.contract.encode(built.features),
        raw,
        reference_log_s=built.reference_log_s,
        history_log_s=built.history_log_s,
    )
    return built.reference_log_s + (combination.combined(forecasts) - (raw + built.reference_log_s))


def combination_of(bundle: Bundle) -> Combination | None:
    """Return the combination that a bundle's card stores; None if the trees answer alone."""
    stored = bundle.card.combination
    return None if stored is None else Combination.of(stored, rows=bundle.card.rows)


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


def member_forecasts(
    bundle: Bundle,
    matrix: npt.NDArray[np.float32],
    raw: FloatArray,
    *,
    reference_log_s: FloatArray,
    history_log_s: FloatArray,
) -> FloatArray:
    """Return the forecasts of a combination's members (n, members, 2), given the trees' outputs `raw` (n, 2).

    `history_log_s` is that of `features.references.Referenced`.
    """
    forest, stored = bundle.quantile_forest, bundle.card.combination
    return forecasts_of(
        () if stored is None else stored.members,
        xgboost=raw + reference_log_s,
        forest=None if forest is None else forest.rows(matrix) + reference_log_s[:, :1],
        reference_log_s=reference_log_s,
        history_log_s=history_log_s,
        typical_s=bundle.card.typical_s,
    )


def five_resources(matrix: npt.NDArray[np.float32]) -> npt.NDArray[np.float32]:
    """Return a response model's inputs (n, 5) from features by `RESPONSE_CONTRACT` (n, 7): known use of group or user.

    >>> five_resources(np.array([[6, 29, 0.5, np.nan, 2, 7, 9]], np.float32)).tolist()
    [[6.0, 29.0, 0.5, 7.0, 2.0]]
    """
    requests, of_group, of_user = np.split(matrix, (3, 5), axis=1)
    return np.hstack([requests, np.where(np.isnan(of_group), of_user, of_group)])


def response_log_s(
    bundle: Bundle, asked: npt.NDArray[np.float32], given: npt.NDArray[np.float32], rows: IntArray
) -> FloatArray:
    """Return the changes of log run time (m, 1) from features `asked[rows[i]]` to `given[i]`, both by the contract."""
    before, after = (outputs_of(bundle, RESPONSE, five_resources(matrix)) for matrix in (asked, given))
    return after - before[rows]


def outputs_of(bundle: Bundle, target: str, matrix: npt.NDArray[np.float32]) -> FloatArray:
    """Return the outputs (n, outputs) of a target's booster for a matrix (n, k), before calibration."""
    forest = bundle.forests.get(target)  # None for a model that was never saved to a file
    return raw_outputs(bundle.boosters[target], matrix) if forest is None else tree_outputs(forest, matrix)


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
