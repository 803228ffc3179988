"""The serving models, as one snapshot: new versions are loaded, checked and warmed, then swapped in one step.

Nothing is downloaded here (`modelserve.loading.sync`). If a bundle fails, its former version stays. Called by the
service, and by its reload and feedback threads.
"""

import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import MappingProxyType
from typing import Final, Literal

from features.online import EndedRun
from modelserve.bundle.champions import (
    ALIASES,
    CHALLENGER,
    CHAMPION,
    Mark,
    Place,
    Pointer,
    files_mark,
    pointer_marks,
    read_pointed,
    read_pointer,
)
from modelserve.errors import ServeError
from modelserve.loading.histories import Forgotten, Histories, give_back_memory, newest_alone
from modelserve.loading.served import ServedModel, warm

__all__ = ["ModelSet", "Snapshot"]

Kind = Literal["runtime", "usage"]
FOLDER: Final = "bundles"
"""The key of `Snapshot.failures` for the folder as a whole."""

RETRY_FIRST_S: Final = 10.0
RETRY_MOST_S: Final = 600.0
"""First and longest wait before a failed model is tried again although nothing changed; the wait doubles in between."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Reload:
    """The result of reloading one alias of one model; `detail` is the reason of a failure."""

    name: str
    version: str | None
    alias: str
    result: Literal["loaded", "failed", "withdrawn"]
    detail: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Snapshot:
    """The models of one moment, by registered name; each call uses one snapshot throughout.

    `failures` holds, by name, the error of a model that could not be loaded, whether or not a former version serves; a
    challenger's key is `<name>@challenger`. A challenger that is already champion is left out. `loaded_at` is the
    clock's time of the last change.
    """

    champions: Mapping[str, ServedModel]
    challengers: Mapping[str, ServedModel]
    failures: Mapping[str, str]
    generation: int
    loaded_at: float

    def model_of(self, kind: Kind, trace: str, workload: str | None, task_type: str) -> ServedModel | None:
        """Return the model that answers for a job: that of its workload if there is one, else that of its task type."""
        for part in (workload, task_type):
            if part is not None and (found := self.champions.get(f"{kind}.{trace}.{part}")) is not None:
                return found
        return None

    def failure_of(self, kind: Kind, trace: str, workload: str | None, task_type: str) -> str | None:
        """Return the failure of the model that would answer for a job, or None."""
        for part in (workload, task_type):
            if part is not None and (found := self.failures.get(f"{kind}.{trace}.{part}")) is not None:
                return found
        return None


def failure_key(name: str, alias: str) -> str:
    """Return the key of `Snapshot.failures` for an alias of a model.

    Examples
    --------
    >>> failure_key("usage.pai.cv", "champion"), failure_key("usage.pai.cv", "challenger")
    ('usage.pai.cv', 'usage.pai.cv@challenger')
    """
    return name if alias == CHAMPION else f"{name}@{alias}"


@dataclass(slots=True, kw_only=True)
class _Seen:
    """The state of a pointer and its files when last read, and when to retry after a failure."""

    mark: Mark
    files: Mark
    retry_at: float | None = None
    wait_s: float = RETRY_FIRST_S


@dataclass(slots=True)
class _Work:
    """The next snapshot while it is being built."""

    models: dict[Place, ServedModel]
    failures: dict[str, str]
    done: list[Reload] = field(default_factory=list)


class ModelSet:
    """The models of a folder, kept up to date by `refresh`; `current` is replaced in one assignment.

    Models of one trace with the same history file share one `OnlineHistory`. Before a new one serves, the users in
    `forgotten` are dropped from it and the feedback in `past` is added.
    """

    def __init__(
        self,
        folder: Path,
        *,
        past: Callable[[str], Iterable[EndedRun]],
        clock: Callable[[], float],
        challengers: bool,
        forgotten: Callable[[str], Iterable[Forgotten]] = lambda _: (),
    ) -> None:
        self._folder = folder
        self._clock = clock
        self._aliases = ALIASES if challengers else (CHAMPION,)
        self._seen: dict[Place, _Seen] = {}
        self._models: dict[Place, ServedModel] = {}
        self._histories = Histories(past, forgotten)
        self._refreshing = threading.Lock()
        self.current = Snapshot(champions={}, challengers={}, failures={}, generation=0, loaded_at=clock())

    def refresh(self) -> list[Reload]:
        """Load the model of every pointer that changed, swap `current` if anything changed, and return what was done.

        Without changes, only the pointers are read. A failed model is tried again when its files change, otherwise
        after a wait that doubles.
        """
        with self._refreshing:
            marks = pointer_marks(self._folder, self._aliases)
            if marks is None:
                return self._folder_away()
            moved = [place for place, mark in marks.items() if self._has_moved(place, mark)]
            gone = [place for place in self._seen if place not in marks]
            if not moved and not gone and FOLDER not in self.current.failures:
                return []
            work = _Work(models=dict(self._models), failures=dict(self.current.failures))
            work.failures.pop(FOLDER, None)
            for place in gone:
                self._withdraw(place, work)
            for place in moved:
                self._follow(place, marks[place], work)
            self._swap(work)
            give_back_memory()
            return work.done

    def learn(self, runs: Sequence[EndedRun]) -> None:
        """Add finished runs to every history of their trace; runs already known change nothing."""
        self._histories.learn(runs)

    def forget(self, trace: str, user: str, clusters: frozenset[str] | None) -> None:
        """Remove a user's runs from every history of the trace; in `clusters` only, where some are named."""
        self._histories.forget(trace, user, clusters)

    def _folder_away(self) -> list[Reload]:
        """Keep the loaded models while the folder cannot be listed, and report it once."""
        if FOLDER in self.current.failures:
            return []
        detail = f"{self._folder.name}: the folder of bundles cannot be listed, expected one; what is loaded serves on"
        work = _Work(models=dict(self._models), failures={**self.current.failures, FOLDER: detail})
        self._swap(work)
        return [Reload(name=FOLDER, version=None, alias="", result="failed", detail=detail)]

    def _has_moved(self, place: Place, mark: Mark) -> bool:
        seen = self._seen.get(place)
        if seen is None or seen.mark != mark:
            return True
        if seen.retry_at is None:
            return False
        return self._clock() >= seen.retry_at or seen.files != files_mark(self._folder / place[0])

    def _withdraw(self, place: Place, work: _Work) -> None:
        name, alias = place
        self._seen.pop(place, None)
        work.failures.pop(failure_key(name, alias), None)
        former = work.models.pop(place, None)
        version = None if former is None else former.bundle.version
        work.done.append(Reload(name=name, version=version, alias=alias, result="withdrawn"))

    def _follow(self, place: Place, mark: Mark, work: _Work) -> None:
        """Load the version that a pointer names; on failure keep the former one and note the reason."""
        name, alias = place
        before = self._seen.get(place)
        files = files_mark(self._folder / name)
        pointer: Pointer | None = None
        try:
            pointer = read_pointer(self._folder, name, alias)
            if pointer is None:
                return  # removed since it was listed; the next refresh withdraws it
            model = _held(work, pointer) or self._load(pointer, work)
        except Exception as error:  # any error of a bundle must leave the serving model in place
            detail = str(error) if isinstance(error, ServeError) else f"{name}: {type(error).__name__}: {error}"
            waits = RETRY_FIRST_S
            if before is not None and before.retry_at is not None and (before.mark, before.files) == (mark, files):
                waits = min(2 * before.wait_s, RETRY_MOST_S)
            self._seen[place] = _Seen(mark=mark, files=files, retry_at=self._clock() + waits, wait_s=waits)
            work.failures[failure_key(name, alias)] = detail[:500]
            version = None if pointer is None else pointer.version
            work.done.append(Reload(name=name, version=version, alias=alias, result="failed", detail=detail[:500]))
            return
        self._seen[place] = _Seen(mark=mark, files=files)
        work.failures.pop(failure_key(name, alias), None)
        if work.models.get(place) is not model:
            work.models[place] = model
            work.done.append(Reload(name=name, version=pointer.version, alias=alias, result="loaded"))

    def _load(self, pointer: Pointer, work: _Work) -> ServedModel:
        known = {model.bundle.history_digest: model.bundle.history for model in work.models.values()}
        bundle = read_pointed(self._folder, pointer, histories=known)
        history = self._histories.of(bundle)
        # `history` now holds the past; the bundle's own copy would take four times as much memory again.
        model = ServedModel.of(replace(bundle, history=newest_alone(bundle.history)), history)
        warm(model)
        return model

    def _swap(self, work: _Work) -> None:
        self._models = work.models
        self._histories.keep([model.bundle for model in work.models.values()])
        champions = {name: model for (name, alias), model in work.models.items() if alias == CHAMPION}
        challengers = {name: model for (name, alias), model in work.models.items() if alias == CHALLENGER}
        self.current = Snapshot(
            champions=MappingProxyType(champions),
            challengers=MappingProxyType({k: v for k, v in challengers.items() if champions.get(k) is not v}),
            failures=MappingProxyType(work.failures),
            generation=self.current.generation + 1,
            loaded_at=self._clock(),
        )


def _held(work: _Work, pointer: Pointer) -> ServedModel | None:
    """Return the version that a pointer names if it is already loaded under either alias."""
    meant = pointer.name, pointer.version, pointer.digest
    for model in work.models.values():
        if (model.bundle.card.name, model.bundle.version, model.bundle.digest) == meant:
            return model
    return None
