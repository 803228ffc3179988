"""The feature engine of serving: builds the feature rows of single jobs from a growing history.

Training uses frames from `features.references.build_referenced`, encoded by a contract. As float32 both give
bit-identical values, which `tests/features/test_rows.py` checks.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

import numpy as np
import numpy.typing as npt

from features.columns.feature import OwnNumber, Text
from features.columns.recency import EXTREMES, PEAK_RUNS, extremes_of
from features.contract import FeatureContract
from features.errors import ContractError
from features.history import NEVER, REQUEST_COLUMNS
from features.kernels import own_numbers, relative_rows
from features.keys import JobAsked, parts_of
from features.lookups import (
    HISTORY_WINDOWS,
    REFERENCE_OF_ALL,
    REFERENCE_OF_LIKE,
    Glance,
    KeyPlan,
    Timeline,
    key_plans,
    newest_rows,
)
from features.online import EVIDENCE_KEYS, OnlineHistory
from features.references import PRIOR_LOG_S, QUANTILE_NAMES, relative_columns
from features.sets import FEATURES

__all__ = ["RowBuilder", "Rows"]

FloatArray = npt.NDArray[np.float64]
Float32Array = npt.NDArray[np.float32]
IntArray = npt.NDArray[np.int64]

NUMBERS: Final = (*REQUEST_COLUMNS, "instances")
"""Numeric canonical columns that features read from a job; the request is first, in the order of a request matrix."""
KEPT_TEMPLATES: Final = 4096
"""Maximum number of templates kept with a history, of one to two KiB each."""
PRIOR: Final = np.tile(np.array([*PRIOR_LOG_S, 0.0]), (len(HISTORY_WINDOWS), 1))
"""The history forecasts of a job without history (3, 3): log p50, log p90, no ended job."""
ROWS_AT_ONCE: Final = 64
"""Maximum number of rows computed while the history is locked once; all use the same state of the history."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Rows:
    """Feature rows (n, k) for a model, and the reference log run times (n, 2) to add to its output.

    `history_log_s` (n, 3, 2) and `evidence` (n, 3) are those of `features.references.Referenced`. `versions` holds the
    history's version when the first rows were computed, and its version when the last were. `runs` (n,) is the number
    of earlier measured runs of each job, as `OnlineHistory.measured_runs` counts them; `extremes` (n, 5) are the
    `EXTREMES` of the newest `PEAK_RUNS` of these in its group and role, NaN where unknown.
    """

    matrix: Float32Array
    reference_log_s: FloatArray
    history_log_s: FloatArray
    evidence: IntArray
    runs: IntArray
    extremes: FloatArray
    versions: tuple[int, int] = (0, 0)


@dataclass(frozen=True, slots=True, kw_only=True)
class RowBuilder:
    """Builder of feature rows for one feature contract.

    `rules` compute columns from the job's own values: its `NUMBERS`, then its text codes (`codes`). `changed` holds the
    rules that depend on the request, and `changed_places` the columns they fill. `keys` are the history lookups.
    `seconds` and `logs` are the columns of run times in seconds and in log seconds. `token` marks its templates.
    """

    width: int
    keys: Sequence[KeyPlan]
    rules: IntArray
    changed: IntArray
    changed_places: IntArray
    codes: Sequence[tuple[str, Mapping[str, float]]]
    seconds: IntArray
    logs: IntArray
    relative: bool
    token: object = field(default_factory=object)

    @classmethod
    def of(cls, contract: FeatureContract, *, relative: bool) -> "RowBuilder":
        """Prepare the rows of a contract; with `relative`, run-time features become logs relative to the references."""
        places = {name: place for place, name in enumerate(contract.names)}
        sources = {name: FEATURES[name].source for name in places}
        texts = {name: source for name, source in sources.items() if isinstance(source, Text)}
        numbers = {name: source.rule(NUMBERS) for name, source in sources.items() if isinstance(source, OwnNumber)}
        plain = {name: (len(NUMBERS) + code, -1, -1) for code, name in enumerate(texts)}
        changed = [name for name in numbers if FEATURES[name].from_request]
        seconds, logs = relative_columns(contract.names) if relative else ([], [])
        return cls(
            width=len(places),
            keys=key_plans(contract.names),
            rules=_integers([(places[name], *rule) for name, rule in {**numbers, **plain}.items()], 4),
            changed=_integers([(i, *numbers[name]) for i, name in enumerate(changed)], 4),
            changed_places=np.array([places[name] for name in changed], dtype=np.int64),
            codes=[
                (source.column, {text: float(code) for code, text in enumerate(contract.categories.get(name, ()))})
                for name, source in texts.items()
            ],
            seconds=np.array([places[name] for name in seconds], dtype=np.int64),
            logs=np.array([places[name] for name in logs], dtype=np.int64),
            relative=relative,
        )

    def rows(self, jobs: Sequence[JobAsked], history: OnlineHistory) -> Rows:
        """Return the feature rows of jobs; all rows of a chunk of `ROWS_AT_ONCE` see the same state of the history."""
        matrix = np.empty((len(jobs), self.width))
        reference = np.zeros((len(jobs), len(QUANTILE_NAMES)))
        forecasts = np.empty((len(jobs), *PRIOR.shape))
        out = np.empty(matrix.shape, dtype=np.float32)
        runs, first, last = np.zeros(len(jobs), dtype=np.int64), -1, 0
        extremes = np.full((len(jobs), len(EXTREMES)), np.nan)
        for start in range(0, len(jobs), ROWS_AT_ONCE):
            with history.lock:
                for i, template in enumerate(self._templates(jobs[start : start + ROWS_AT_ONCE], history), start=start):
                    row = matrix[i]
                    row[:], reference[i] = template.row, template.reference
                    forecasts[i], runs[i], extremes[i] = template.forecasts, template.runs, template.extremes
                    for plan, timeline in template.moving:
                        plan.fill_moving(row, timeline, jobs[i].submit_us, history.ledger)
                last = history.version
            first = last if first < 0 else first
        if len(jobs):
            own_numbers(np.array([self._own(job) for job in jobs], dtype=np.float64), self.rules, matrix)
        relative_rows(matrix, reference, self.seconds, self.logs, out)
        return Rows(
            matrix=out,
            reference_log_s=reference,
            history_log_s=np.ascontiguousarray(forecasts[:, :, :2]),
            evidence=forecasts[:, :, 2].astype(np.int64),
            runs=runs,
            extremes=extremes,
            versions=(max(first, 0), last),
        )

    def with_requests(
        self, rows: Float32Array, jobs: Sequence[JobAsked], index: IntArray, requests: FloatArray
    ) -> Float32Array:
        """Return rows (m, k) under counterfactual requests: row i is `jobs[index[i]]` with the request `requests[i]`.

        `rows` is the matrix (n, k) that the method `rows` returned for `jobs`; `requests` (m, 3) is per instance, NaN
        for unknown.
        """
        instances = np.array([job.instances for job in jobs], dtype=np.float64)
        numbers = np.column_stack([requests, instances[index]])
        changed = np.empty((len(index), len(self.changed)))
        own_numbers(numbers, self.changed, changed)
        matrix = rows[index]
        matrix[:, self.changed_places] = changed
        return matrix

    def _own(self, job: JobAsked) -> list[float]:
        numbers = [getattr(job, name) for name in NUMBERS]
        return numbers + [codes.get(getattr(job, column), np.nan) for column, codes in self.codes]

    def _templates(self, jobs: Sequence[JobAsked], history: OnlineHistory) -> Sequence["_Template"]:
        """Return the template of each job, and build missing ones. The caller must hold the lock of the history."""
        found: list[_Template | None] = []
        for job in jobs:
            if job.trace != history.trace and history.trace is not None:
                raise ContractError(f"jobs: found the trace {job.trace!r}; expected {history.trace!r}, the history's")
            known = history.templates.get((self.token, parts_of(job)))
            holds = isinstance(known, _Template) and known.after_us < job.submit_us <= known.upto_us
            found.append(known if holds else None)  # type: ignore[arg-type]  # a `_Template`, if it holds
        if missing := [i for i, known in enumerate(found) if known is None]:
            if len(history.templates) + len(missing) > KEPT_TEMPLATES:
                history.templates.clear()
            built = self._built([jobs[i] for i in missing], history)
            for i, template in zip(missing, built, strict=True):
                found[i] = history.templates[self.token, parts_of(jobs[i])] = template
        return found  # type: ignore[return-value]  # all are built

    def _built(self, jobs: Sequence[JobAsked], history: OnlineHistory) -> list["_Template"]:
        seen, rows = _Seen(history, jobs), np.full((len(jobs), self.width), np.nan)
        moving: list[list[tuple[KeyPlan, Timeline]]] = [[] for _ in jobs]
        for plan in self.keys:
            glances, held = seen.glances(plan.key)
            plan.fill([rows[i] for i in held], glances, history.ledger)
            if plan.moving is not None:
                for i, glance in zip(held, glances, strict=True):
                    moving[i].append((plan, glance.timeline))
        reference, forecasts = np.zeros((len(jobs), len(QUANTILE_NAMES))), np.tile(PRIOR, (len(jobs), 1, 1))
        if self.relative:
            reference[:] = _references(seen, history)
            _forecast(seen, history, forecasts)
        runs = np.zeros(len(jobs), dtype=np.int64)
        for key in reversed(EVIDENCE_KEYS):
            known, held = seen.glances(key)
            runs[held] = [glance.stop("measured") for glance in known]
        extremes = np.full((len(jobs), len(EXTREMES)), np.nan)
        known, held = seen.glances(EVIDENCE_KEYS[0])
        if known:
            extremes[held] = extremes_of(history.ledger.values, newest_rows(known, "measured", PEAK_RUNS))
        of_jobs = zip(rows, reference, forecasts, runs.tolist(), extremes, moving, *seen.unchanged(), strict=True)
        return [_Template(*each) for each in of_jobs]


@dataclass(frozen=True, slots=True)
class _Template:
    """The values that rows of jobs with equal key parts share until the next event under their keys.

    It holds for moments after `after_us`, up to `upto_us`. `moving` are the plans that also depend on the moment.
    """

    row: FloatArray
    reference: FloatArray
    forecasts: FloatArray
    runs: int
    extremes: FloatArray
    moving: Sequence[tuple[KeyPlan, Timeline]]
    after_us: int
    upto_us: int


class _Seen:
    """The jobs of one chunk with their glances (timelines at submission), cached by key.

    The caller must hold the history's lock.
    """

    def __init__(self, history: OnlineHistory, jobs: Sequence[JobAsked]) -> None:
        self.count = len(jobs)
        self._history = history
        self._parts = [(parts_of(job), job.submit_us) for job in jobs]
        self._found: dict[str, tuple[list[Glance], list[int]]] = {}

    def glances(self, key: str) -> tuple[list[Glance], list[int]]:
        """Return the glances of the jobs for which all parts of a key are known, and the indices of these jobs."""
        found = self._found.get(key)
        if found is None:
            glances = [self._history.glance(key, parts, now_us) for parts, now_us in self._parts]
            known = [glance for glance in glances if glance is not None]
            found = self._found[key] = known, [i for i, glance in enumerate(glances) if glance is not None]
        return found

    def unchanged(self) -> tuple[list[int], list[int]]:
        """Return for each job the times of the last event before its moment and of the next one, over all its keys."""
        after_us, upto_us = [-NEVER] * self.count, [NEVER] * self.count
        for glances, held in self._found.values():
            for i, glance in zip(held, glances, strict=True):
                last, following = glance.unchanged()
                after_us[i], upto_us[i] = max(after_us[i], last), min(upto_us[i], following)
        return after_us, upto_us


def _forecast(seen: _Seen, history: OnlineHistory, forecasts: FloatArray) -> None:
    """Fill in the known history forecasts (n, 3, 3); the forecast of the next key replaces an unknown forecast."""
    for place in reversed(range(len(HISTORY_WINDOWS))):
        key, windows = HISTORY_WINDOWS[place]
        glances, held = seen.glances(key)
        if place + 1 < len(HISTORY_WINDOWS):
            forecasts[:, place, :2] = forecasts[:, place + 1, :2]
        for i, (p50, p90, count) in zip(held, windows.at(glances, history.ledger.values), strict=True):
            forecasts[i, place, 2] = count
            if count:
                forecasts[i, place, :2] = p50, p90


def _references(seen: _Seen, history: OnlineHistory) -> list[tuple[float, float]]:
    """Return each job's reference log run times: the first known of similar jobs, all jobs and `PRIOR_LOG_S`."""
    references = [(math.nan, math.nan)] * seen.count
    for key, windows in (("like", REFERENCE_OF_LIKE), ("all", REFERENCE_OF_ALL)):
        if all(p50 == p50 and p90 == p90 for p50, p90 in references):  # only NaN differs from itself
            return references
        glances, held = seen.glances(key)
        for i, below in zip(held, windows.at(glances, history.ledger.values), strict=True):
            references[i] = _first_known(references[i], below)
    return [_first_known(each, PRIOR_LOG_S) for each in references]


def _first_known(level: tuple[float, float], below: tuple[float, float]) -> tuple[float, float]:
    return below[0] if level[0] != level[0] else level[0], below[1] if level[1] != level[1] else level[1]


def _integers(rows: Sequence[tuple[int, ...]], width: int) -> IntArray:
    return np.array(rows, dtype=np.int64).reshape(-1, width)
