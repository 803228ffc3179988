"""Rows of a model's features, one job at a time over a history that grows: what serving asks.

Equal to the bit, as float32, to what `features.reference.build_referenced` and a contract's `encode` make of frames.
Called by `modelserve.served` and whoever holds one of its models.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache, partial
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from features.columns import recency
from features.columns.feature import Asked, Load, Local, Newest, Recent, Text
from features.columns.load import MEASURES, Measure
from features.columns.newest import STATS
from features.columns.request import REQUEST_COLUMNS
from features.contract import FeatureContract
from features.errors import ContractError
from features.kernels import against, asked, newest_at_places
from features.online import JobAsked, OnlineHistory, parts_of
from features.reference import ALL, LIKE, QUANTILE_NAMES, UNINFORMED_LOG_S, log_mean, relative_columns
from features.sets import FEATURES
from features.timelines import Glance, newest_rows

FloatArray = npt.NDArray[np.float64]
Float32Array = npt.NDArray[np.float32]
IntArray = npt.NDArray[np.int64]

NUMBERS: Final = (*REQUEST_COLUMNS, "instances", "time_limit_s", "priority")
"""The canonical numbers of a job's own row; the request first, as in a request matrix, then the gang's size."""
ROWS_AT_ONCE: Final = 64
"""How many rows are told from one state of the history: no feedback comes between."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Rows:
    """Feature rows (n, k) as a model takes them, and the log run times its answers are added to (n, 2)."""

    matrix: Float32Array
    reference_log_s: FloatArray


@dataclass(frozen=True, slots=True, eq=False)
class _Windows:
    """Statistics over windows of one key, remembered as one; told apart by identity."""

    kind: str
    plan: recency.Plan
    finish: Callable[[FloatArray], Any] = np.array  # what is remembered: the statistics, or a reference

    def at(self, glances: Sequence[Glance], values: Mapping[str, FloatArray]) -> list[Any]:
        """Return the statistics of each glance; what is not remembered is computed for all of them at once."""
        found = [glance.timeline.answers.get((self, glance.stop(self.kind))) for glance in glances]
        unknown = any(answer is None for answer in found)
        return self._completed(found, glances, values) if unknown else found

    def _completed(self, found: list[Any], glances: Sequence[Glance], values: Mapping[str, FloatArray]) -> list[Any]:
        spans = [(id(glance.timeline), glance.stop(self.kind)) for glance in glances]
        new = {span: glance for span, glance, answer in zip(spans, glances, found, strict=True) if answer is None}
        computed = recency.of_spans(self.plan, values, partial(newest_rows, list(new.values())))
        answers = dict(zip(new, map(self.finish, computed), strict=True))
        for span, glance in new.items():
            glance.timeline.remember(self, span[1], answers[span])
        return [answers[span] if known is None else known for span, known in zip(spans, found, strict=True)]


@dataclass(frozen=True, slots=True, kw_only=True)
class _KeyPlan:
    """What is looked up under one key, and which columns it goes to."""

    key: str
    windows: Sequence[tuple[_Windows, IntArray]]
    measures: Sequence[tuple[Measure, int]]
    newest: tuple[IntArray, IntArray] | None

    def fill(self, rows: Sequence[FloatArray], glances: Sequence[Glance], history: OnlineHistory) -> None:
        """Write what glances tell into their rows."""
        for windows, places in self.windows:
            for row, answer in zip(rows, windows.at(glances, history.ledger.values), strict=True):
                row[places] = answer
        for measure, place in self.measures:
            for row, glance in zip(rows, glances, strict=True):
                row[place] = measure(glance)
        if self.newest is not None:
            stats, places = self.newest
            times = history.ledger.times
            submit_us, start_us, end_us = times["submit"], times["start"], times["end"]
            for row, glance in zip(rows, glances, strict=True):
                submitted, stop = glance.timeline.tracks["submitted"].rows, glance.stop("submitted")
                newest_at_places(submitted, stop, glance.now_us, submit_us, start_us, end_us, stats, places, row)


@dataclass(frozen=True, slots=True, kw_only=True)
class RowBuilder:
    """Builds the rows of one contract.

    `rules` tell how columns follow from the numbers of a job's own row (after which stand the codes of its texts, then
    its clock), `changed` those of counterfactual requests and `changed_places` their columns.
    """

    width: int
    keys: Sequence[_KeyPlan]
    rules: IntArray
    changed: IntArray
    changed_places: IntArray
    codes: Sequence[tuple[str, Mapping[str, float]]]
    locals_: Sequence[Local]
    seconds: IntArray
    logs: IntArray
    relative: bool

    @classmethod
    def of(cls, contract: FeatureContract, *, relative: bool) -> "RowBuilder":
        """Plan the rows of a contract; with `relative`, run times are seen against the references.

        Raises
        ------
        ContractError
            If a feature is measured during the run: no such row can be served.
        """
        names = list(contract.names)
        sources = {name: FEATURES[name].source for name in names}
        measured = [name for name, source in sources.items() if not isinstance(source, _SERVED)]
        if measured:
            raise ContractError(f"features: found {', '.join(measured)}; expected features known at submission")
        texts = [(name, source) for name, source in sources.items() if isinstance(source, Text)]
        locals_ = [(name, source) for name, source in sources.items() if isinstance(source, Local)]
        own = [*NUMBERS, *(name for name, _ in texts), *(name for name, _ in locals_)]
        asked = {name: source.rule(NUMBERS) for name, source in sources.items() if isinstance(source, Asked)}
        plain = {name: (own.index(name), -1, -1) for name, _ in (*texts, *locals_)}
        changed = [name for name in asked if FEATURES[name].from_request]
        seconds, logs = relative_columns(names) if relative else ([], [])
        return cls(
            width=len(names),
            keys=_key_plans(names),
            rules=_integers([(names.index(name), *rule) for name, rule in {**asked, **plain}.items()], 4),
            changed=_integers([(i, *asked[name]) for i, name in enumerate(changed)], 4),
            changed_places=np.array([names.index(name) for name in changed], dtype=np.int64),
            codes=[
                (source.column, {text: float(code) for code, text in enumerate(contract.categories.get(name, ()))})
                for name, source in texts
            ],
            locals_=[source for _, source in locals_],
            seconds=np.array([names.index(name) for name in seconds], dtype=np.int64),
            logs=np.array([names.index(name) for name in logs], dtype=np.int64),
            relative=relative,
        )

    def rows(self, jobs: Sequence[JobAsked], history: OnlineHistory) -> Rows:
        """Return the rows of jobs, each from one state of the history, in chunks of `ROWS_AT_ONCE`.

        Raises
        ------
        ContractError
            If a job is of another trace than the history.
        """
        matrix = np.full((len(jobs), self.width), np.nan)
        reference = np.zeros((len(jobs), len(QUANTILE_NAMES)))
        out = np.empty(matrix.shape, dtype=np.float32)
        if len(jobs):
            asked(np.array([self._own(job) for job in jobs], dtype=np.float64), self.rules, matrix)
        for start in range(0, len(jobs) if self.keys or self.relative else 0, ROWS_AT_ONCE):
            chunk = slice(start, start + ROWS_AT_ONCE)
            with history.lock:
                self._look(list(matrix[chunk]), reference[chunk], jobs[chunk], history)
        against(matrix, reference, self.seconds, self.logs, out)
        return Rows(matrix=out, reference_log_s=reference)

    def with_requests(
        self, rows: Rows, jobs: Sequence[JobAsked], index: IntArray, requests: FloatArray
    ) -> Float32Array:
        """Return the rows (m, k) of counterfactual requests: row i is `jobs[index[i]]` as if it asked `requests[i]`.

        `rows` is what `rows` gave for `jobs`; `requests` (m, 3) is per instance, NaN for unknown.
        """
        instances = np.array([job.instances for job in jobs], dtype=np.float64)
        numbers = np.column_stack([requests, instances[index]])
        changed = np.empty((len(index), len(self.changed)))
        asked(numbers, self.changed, changed)
        matrix = rows.matrix[index]
        matrix[:, self.changed_places] = changed
        return matrix

    def _own(self, job: JobAsked) -> list[float]:
        numbers = [
            job.req_cpu_cores,
            job.req_mem_gib,
            job.req_gpus,
            job.instances,
            job.time_limit_s,
            job.priority,
        ]
        numbers += [codes.get(getattr(job, column), np.nan) for column, codes in self.codes]
        numbers += [local.of(job.trace, job.submit_us) for local in self.locals_]
        return numbers

    def _look(
        self, rows: Sequence[FloatArray], reference: FloatArray, jobs: Sequence[JobAsked], history: OnlineHistory
    ) -> None:
        seen = _Seen(history, jobs)
        for plan in self.keys:
            glances, held = seen.glances(plan.key)
            plan.fill([rows[i] for i in held], glances, history)
        if self.relative:
            reference[:] = _references(seen, history)


_SERVED: Final = (Asked, Text, Local, Recent, Load, Newest)


class _Seen:
    """Jobs of one chunk and their glances at keys, each found once; for holders of the history's lock."""

    def __init__(self, history: OnlineHistory, jobs: Sequence[JobAsked]) -> None:
        for job in jobs:
            if job.trace != history.trace and history.trace is not None:
                raise ContractError(f"jobs: found the trace {job.trace!r}; expected {history.trace!r}, the history's")
        self.count = len(jobs)
        self._history = history
        self._asked = [(parts_of(job), job.submit_us) for job in jobs]
        self._found: dict[str, tuple[list[Glance], list[int]]] = {}

    def glances(self, key: str) -> tuple[list[Glance], list[int]]:
        """Return the glances at a key of the jobs that have it, and which these are: unknown users are not one user."""
        found = self._found.get(key)
        if found is None:
            glances = [self._history.glance(key, parts, now_us) for parts, now_us in self._asked]
            known = [glance for glance in glances if glance is not None]
            found = self._found[key] = known, [i for i, glance in enumerate(glances) if glance is not None]
        return found


def _references(seen: _Seen, history: OnlineHistory) -> list[tuple[float, float]]:
    """Return what each job's answers are added to: as of its like, else of all, else uninformed."""
    found = _told(_LIKE, "like", seen, history)
    if any(p50 != p50 or p90 != p90 for p50, p90 in found):  # NaN is not itself
        rest = _told(_ALL, "all", seen, history)
        found = [_first_known(level, below) for level, below in zip(found, rest, strict=True)]
    return found


def _told(windows: _Windows, key: str, seen: _Seen, history: OnlineHistory) -> list[tuple[float, float]]:
    glances, held = seen.glances(key)
    told = [(np.nan, np.nan)] * seen.count
    for i, pair in zip(held, windows.at(glances, history.ledger.values), strict=True):
        told[i] = pair
    return told


def _first_known(level: tuple[float, float], below: tuple[float, float]) -> tuple[float, float]:
    p50, p90 = (
        next(log_s for log_s in (*of_quantile, UNINFORMED_LOG_S) if log_s == log_s)
        for of_quantile in zip(level, below, strict=True)
    )
    return p50, p90


def _key_plans(names: Sequence[str]) -> list[_KeyPlan]:
    looks = {i: source for i, name in enumerate(names) if isinstance(source := FEATURES[name].source, _LOOKS)}
    plans = []
    for key in dict.fromkeys(look.key for look in looks.values()):
        mine = {i: look for i, look in looks.items() if look.key == key}
        recent = {i: look for i, look in mine.items() if isinstance(look, Recent)}
        windows = []
        for kind in dict.fromkeys(look.events for look in recent.values()):
            here = {i: look for i, look in recent.items() if look.events == kind}
            windows.append((_windows(kind, tuple(here.values())), np.array(list(here), dtype=np.int64)))
        submitted = {i: STATS.index(look.stat) for i, look in mine.items() if isinstance(look, Newest)}
        stats_and_places = (np.array(list(submitted.values())), np.array(list(submitted)))
        plans.append(
            _KeyPlan(
                key=key,
                windows=windows,
                measures=[(MEASURES[look.measure], i) for i, look in mine.items() if isinstance(look, Load)],
                newest=stats_and_places if submitted else None,
            )
        )
    return plans


_LOOKS: Final = (Recent, Load, Newest)


@lru_cache(maxsize=256)
def _windows(kind: str, looks: tuple[Recent, ...]) -> _Windows:
    """Return the windows that answer these looks: the same ones, so that models of one history share their answers."""
    return _Windows(kind, recency.plan(looks))


def _reference_windows(names: Mapping[str, Sequence[str]]) -> _Windows:
    sources = [FEATURES[name].source for quantile in QUANTILE_NAMES for name in names[quantile]]
    looks = tuple(source for source in sources if isinstance(source, Recent))
    return _Windows("ended", recency.plan(looks), _log_means)


def _log_means(seconds: FloatArray) -> tuple[float, float]:
    """Return the log means of p50 and p90, each of three windows; NaN where unknown."""
    known = seconds.tolist()
    return log_mean(known[:3]), log_mean(known[3:])


_LIKE: Final = _reference_windows(LIKE)
_ALL: Final = _reference_windows(ALL)


def _integers(rows: Sequence[tuple[int, ...]], width: int) -> IntArray:
    return np.array(rows, dtype=np.int64).reshape(-1, width)
