"""The serving models: new versions are loaded, checked and warmed, then a new snapshot replaces the former in one step.

If a bundle cannot be loaded, its former version keeps serving. Models of a trace that have the same history file share
one history, to which ended runs are added. Models are downloaded by `modelserve.loading.sync`.
"""

import ctypes
import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import islice
from pathlib import Path
from types import MappingProxyType
from typing import Final, Literal

from features.history import History
from features.online import EndedRun, OnlineHistory
from modelserve.bundle.bundle import Bundle
from modelserve.bundle.champions import Mark, Pointer, model_marks, read_pointed, read_pointer
from modelserve.bundle.served import ServedModel, warm
from modelserve.errors import ServeError
from modelserve.store.finished import Stored

__all__ = ["ModelSet", "Snapshot"]

FOLDER: Final = "bundles"
"""Key in `Snapshot.failures` of the error that the folder of bundles cannot be listed."""

RETRY_S: Final = 60.0
"""Wait before a failed model with unchanged files is tried again."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Reload:
    """The result of loading or withdrawing one model; `detail` is the reason of a failure."""

    name: str
    version: str | None
    result: Literal["loaded", "failed", "withdrawn"]
    detail: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Snapshot:
    """The models loaded at one moment, by registered name; a call uses the same snapshot from start to end.

    `failures` holds the error of each model whose current version could not be loaded, even if a former version serves.
    `generation` counts the snapshots.
    """

    champions: Mapping[str, ServedModel]
    failures: Mapping[str, str]
    generation: int


_C_LIBRARY: Final = ctypes.CDLL(None)


def give_back_memory() -> None:
    """Return freed memory to the operating system, if the C library supports it (`malloc_trim` of glibc).

    Rebuilding a history frees tens of MiB in blocks that glibc keeps and does not reuse; a worker grew by 16 MiB with
    each rebuild. Trimming takes about a millisecond. Setting `MALLOC_MMAP_THRESHOLD_` has the same effect, but makes a
    call with a thousand jobs a tenth slower.
    """
    trim = getattr(_C_LIBRARY, "malloc_trim", None)
    if trim is not None:
        trim(0)


CHUNK: Final = 25_000
"""Number of past runs added to a new history at a time."""


class Histories:
    """The histories of the loaded models, by trace and SHA-256 of the history file."""

    def __init__(self, past: Callable[[str], Iterable[EndedRun]]) -> None:
        self._past = past
        self._held: dict[tuple[str, str], OnlineHistory] = {}
        self._begun: dict[tuple[str, str], list[EndedRun]] = {}
        self._lock = threading.Lock()  # held while histories change, but not while one is built
        self._building = threading.Lock()  # prevents two threads from building the same history

    def of(self, bundle: Bundle) -> OnlineHistory:
        """Return the history of a bundle, and build it first if it is not in use yet.

        A new history is the one in the bundle with all feedback so far. Runs that arrive while it is built do not
        wait; they are added to it before it is returned.
        """
        key = _key(bundle)
        with self._building:
            with self._lock:
                if key in self._held:
                    return self._held[key]
                missed = self._begun[key] = []
            try:
                history = self._built(bundle)
                while True:
                    with self._lock:
                        if not missed:
                            self._held[key] = history
                            return history
                        runs, missed[:] = list(missed), []
                    history.add(runs)
            finally:
                with self._lock:
                    del self._begun[key]

    def keep(self, bundles: Iterable[Bundle]) -> None:
        """Drop all histories that none of these bundles use."""
        used = {_key(bundle) for bundle in bundles}
        with self._lock:
            self._held = {key: history for key, history in self._held.items() if key in used}

    def learn(self, runs: Sequence[EndedRun]) -> None:
        """Add finished runs to every history of their trace; runs already in a history are skipped."""
        by_trace: dict[str, list[EndedRun]] = {}
        for run in runs:
            by_trace.setdefault(run.trace, []).append(run)
        with self._lock:
            for (trace, _), missed in self._begun.items():
                missed += by_trace.get(trace, ())
            for (trace, _), history in self._held.items():
                before = history.replaced
                if trace in by_trace:
                    history.add(by_trace[trace])
                if history.replaced > before:
                    give_back_memory()

    def _built(self, bundle: Bundle) -> OnlineHistory:
        history = OnlineHistory(bundle.history)
        past = iter(self._past(bundle.card.trace))
        while chunk := list(islice(past, CHUNK)):
            history.add(chunk)
        return history


def without_history(bundle: Bundle) -> Bundle:
    """Return a bundle whose history is empty, so that its memory can be freed; an `OnlineHistory` takes a quarter."""
    return replace(bundle, history=History.from_tail(bundle.history.frame.clear()))


def _key(bundle: Bundle) -> tuple[str, str]:
    return bundle.card.trace, bundle.history_digest


@dataclass(slots=True)
class _Work:
    """The contents of the next snapshot while a refresh builds it, and the reloads so far."""

    models: dict[str, ServedModel]
    failures: dict[str, str]
    done: list[Reload] = field(default_factory=list)


class ModelSet:
    """The models of a folder, kept up to date by `refresh`.

    The snapshot `current` is replaced in one assignment, so threads may read it without a lock. Models of a trace that
    have the same history file share one `OnlineHistory`. Before a new history is used, the runs in `past` are added.
    """

    def __init__(self, folder: Path, *, past: Callable[[str], Iterable[EndedRun]], clock: Callable[[], float]) -> None:
        self._folder = folder
        self._clock = clock
        self._seen: dict[str, Mark] = {}
        self._retries: dict[str, float] = {}  # next time, by name
        self._histories = Histories(past)
        self._refreshing = threading.Lock()
        self.current = Snapshot(champions={}, failures={}, generation=0)

    def refresh(self) -> list[Reload]:
        """Follow the pointers of the models whose files changed, replace `current`, and return what was done.

        A failed model is tried again when its files change, otherwise after `RETRY_S`.
        """
        with self._refreshing:
            marks = model_marks(self._folder)
            if marks is None:
                return self._folder_away()
            due = [name for name in sorted(marks.keys() | self._seen.keys()) if self._is_due(name, marks.get(name))]
            if not due and FOLDER not in self.current.failures:
                return []
            work = _Work(models=dict(self.current.champions), failures=dict(self.current.failures))
            work.failures.pop(FOLDER, None)
            for name in due:
                self._remember(name, marks.get(name), well=self._follow(name, work))
            if not _same(work.models, self.current.champions) or work.failures != self.current.failures:
                self._swap(work)
                give_back_memory()
            return work.done

    def learn(self, runs: Sequence[EndedRun]) -> None:
        """Add finished runs to every history of their trace; runs already in a history are skipped."""
        self._histories.learn(runs)

    def weigh(self, scored: Callable[[str, int, int], Iterable[Stored]], upto: int) -> None:
        """Update the weights of every combined model with the jobs finished up to the change number `upto`.

        `scored(reference, after, upto)` returns the finished jobs that a model scored, in the order of their numbers.
        All workers read the same jobs in the same order, so their weights agree.
        """
        for model in self.current.champions.values():
            model.learn(scored, upto)

    def _folder_away(self) -> list[Reload]:
        """Report once that the folder cannot be listed; the loaded models stay."""
        if FOLDER in self.current.failures:
            return []
        detail = f"{self._folder.name}: the folder of bundles cannot be listed, expected one; what is loaded serves on"
        work = _Work(models=dict(self.current.champions), failures={**self.current.failures, FOLDER: detail})
        self._swap(work)
        return [Reload(name=FOLDER, version=None, result="failed", detail=detail)]

    def _is_due(self, name: str, mark: Mark | None) -> bool:
        return mark != self._seen.get(name) or self._clock() >= self._retries.get(name, float("inf"))

    def _remember(self, name: str, mark: Mark | None, *, well: bool) -> None:
        self._retries.pop(name, None)
        if not well:
            self._retries[name] = self._clock() + RETRY_S
        self._seen.pop(name, None)
        if mark is not None:
            self._seen[name] = mark

    def _follow(self, name: str, work: _Work) -> bool:
        """Load the version that a pointer names, or withdraw the model if there is no pointer.

        If this fails, keep the former version, record the reason and return False.
        """
        former = work.models.get(name)
        pointer: Pointer | None = None
        try:
            pointer = read_pointer(self._folder, name)
            model = None if pointer is None else _loaded(former, pointer) or self._load(pointer, work)
        except Exception as error:  # whatever the error, the serving model must stay
            detail = (str(error) if isinstance(error, ServeError) else f"{name}: {type(error).__name__}: {error}")[:500]
            work.failures[name] = detail
            version = None if pointer is None else pointer.version
            work.done.append(Reload(name=name, version=version, result="failed", detail=detail))
            return False
        failed = work.failures.pop(name, None)
        if model is None:
            if former is not None or failed:
                version = None if former is None else former.bundle.version
                work.models.pop(name, None)
                work.done.append(Reload(name=name, version=version, result="withdrawn"))
        elif model is not former:
            work.models[name] = model
            work.done.append(Reload(name=name, version=model.bundle.version, result="loaded"))
        return True

    def _load(self, pointer: Pointer, work: _Work) -> ServedModel:
        known = {model.bundle.history_digest: model.bundle.history for model in work.models.values()}
        bundle = read_pointed(self._folder, pointer, histories=known)
        history = self._histories.of(bundle)
        model = ServedModel.of(without_history(bundle), history)
        warm(model)
        return model

    def _swap(self, work: _Work) -> None:
        self._histories.keep([model.bundle for model in work.models.values()])
        self.current = Snapshot(
            champions=MappingProxyType(work.models),
            failures=MappingProxyType(work.failures),
            generation=self.current.generation + 1,
        )


def _same(models: Mapping[str, ServedModel], others: Mapping[str, ServedModel]) -> bool:
    """Return whether two mappings hold identical model objects."""
    return models.keys() == others.keys() and all(model is others[name] for name, model in models.items())


def _loaded(former: ServedModel | None, pointer: Pointer) -> ServedModel | None:
    """Return the loaded model if a pointer names the same version, otherwise None."""
    same = former and (former.bundle.version, former.bundle.digest) == (pointer.version, pointer.digest)
    return former if same else None
