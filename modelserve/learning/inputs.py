"""Input drift: compare the feature rows that a model received recently with those it was trained on.

Recent rows are read from the log of responses. The distance is computed in `modelserve.bundle.population`. Called by
`modelserve.learning.drift`.
"""

import json
from collections import defaultdict
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Final

import numpy as np
import numpy.typing as npt

from modelserve.callers import Caller
from modelserve.contract.learning import FeatureDrift, InputDrift
from modelserve.errors import BadRequest
from modelserve.learning.verdicts import THRESHOLDS, by_bounds
from modelserve.loading.feature_records import Scored, decode_features
from modelserve.store import Store
from modelserve.store.answers import AnswerRecord, Part, newest_answers

if TYPE_CHECKING:
    from modelserve.loading.served import ServedModel

Matrix = npt.NDArray[np.float32]

ANSWERS: Final = 1_000
"""Maximum number of logged responses read, newest first."""
READ_BYTES: Final = 64 * 2**20
"""Maximum total size of the logged responses that are read."""
ROWS: Final = 2_000
"""Maximum number of feature rows compared for each model."""
SHOWN: Final = 10
"""Number of features with the largest drift that are reported."""


def inputs_of(store: Store, models: Sequence["ServedModel"], caller: Caller) -> dict[str, Matrix]:
    """Return the newest logged feature rows of each model for jobs that the caller may see, by model reference.

    For all models together, at most `ANSWERS` records of at most `READ_BYTES` in total are read.

    Raises
    ------
    StoreError
        The store cannot be read.
    """
    widths = {model.reference: len(model.bundle.contract.names) for model in models}
    parts: tuple[Part, ...] = ("features",) if caller.clusters is None else ("features", "context")
    found: dict[str, list[Matrix]] = defaultdict(list)
    counts = dict.fromkeys(widths, 0)
    for record in newest_answers(store, parts=parts, citing=widths, limit=ANSWERS, limit_bytes=READ_BYTES):
        if not any(counts[name] < ROWS for name in widths):
            break
        for seen in _shown(record):
            if seen.matrix.shape[1] == widths.get(seen.model) and counts[seen.model] < ROWS:
                kept = _within(seen, record, caller)[: ROWS - counts[seen.model]]
                counts[seen.model] += len(kept)
                found[seen.model].append(kept.copy())  # a view would keep the whole record in memory
    return {name: np.concatenate(parts) for name, parts in found.items()}


def judged_inputs(model: "ServedModel", matrix: Matrix | None) -> InputDrift:
    """Compare feature rows with the training rows of a model.

    The verdict is `unknown` if the model stores no distribution of its training rows, or if there are too few rows.
    """
    population = model.bundle.population
    rows = 0 if matrix is None else len(matrix)
    if population is None or matrix is None or rows < THRESHOLDS.least_rows:
        return InputDrift(rows=rows, psi=None, features=(), verdict="unknown")
    names = model.bundle.contract.names
    importance = {each.feature: each.mean for each in model.bundle.importances}
    psi = np.array([population.features[name].psi(matrix[:, column]) for column, name in enumerate(names)])
    weights = np.array([max(importance.get(name) or 0.0, 0.0) for name in names])
    if not weights.sum() > 0.0:
        weights = np.ones(len(names))
    weighted = psi * weights / weights.sum()
    most = np.argsort(-weighted, kind="stable")[:SHOWN]
    total = float(weighted.sum())
    return InputDrift(
        rows=rows,
        psi=total,
        features=tuple(
            FeatureDrift(feature=names[i], psi=float(psi[i]), importance=importance.get(names[i])) for i in most
        ),
        verdict=by_bounds(total, THRESHOLDS.psi_watch, THRESHOLDS.psi_drifted),
    )


def _shown(record: AnswerRecord) -> Sequence[Scored]:
    try:
        return decode_features(record.features)
    except BadRequest:  # skip records written by another version of the service
        return ()


def _within(seen: Scored, record: AnswerRecord, caller: Caller) -> Matrix:
    """Return the rows of jobs that the caller may see; a caller bound to clusters sees only jobs that name one."""
    if caller.clusters is None:
        return seen.matrix
    try:
        jobs: Sequence[Mapping[str, object]] = json.loads(record.context)["body"]["jobs"]
        within = [jobs[row].get("cluster") in caller.clusters for row in seen.rows]
    except (ValueError, KeyError, TypeError, IndexError):
        return seen.matrix[:0]
    return seen.matrix[np.array(within, dtype=np.bool_)]
