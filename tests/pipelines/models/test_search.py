"""The search: the default first, then trials that depend on the seed and the finished trials only, through any stop."""

import math
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import optuna
import pytest
from optuna.trial import TrialState

from pipelines.errors import BadUsage, Busy, TrainingError
from pipelines.models.fitted import Recipe
from pipelines.models.metrics import FloatArray
from pipelines.models.search import Progress, search
from pipelines.models.tuning import SPACE, values_of

FOLDS = (0, 1, 2)


@dataclass
class Bowl:
    """A task whose loss grows with the distance of depth and learning rate from their best."""

    study: str = "runtime.made.ctr-0"
    model: str = "runtime.made.ctr"
    seed: int = 0
    folds: tuple[int, ...] = FOLDS
    fitted: list[Recipe] = field(default_factory=list)
    before: Callable[[int], None] = lambda count: None

    def fold_loss(self, recipe: Recipe, fold: int) -> FloatArray:
        self.before(len(self.fitted))
        self.fitted.append(recipe)
        grown = recipe.boosting
        loss = 1.0 + abs(grown.max_depth - 4) + abs(math.log(grown.learning_rate / 0.2)) + 0.01 * fold
        return np.full(5, loss)

    def daily(self, losses: FloatArray) -> FloatArray:
        by_day: FloatArray = losses.reshape(len(FOLDS), -1).sum(axis=1)
        return by_day


def trials(database: Path) -> list[Any]:
    return list(optuna.load_study(study_name=Bowl.study, storage=f"sqlite:///{database}").trials)


def done(database: Path) -> list[tuple[Any, Any]]:
    over = {TrialState.COMPLETE, TrialState.PRUNED}
    return [(each.params, each.intermediate_values) for each in trials(database) if each.state in over]


def run(task: Bowl, database: Path, count: int, **options: Any) -> Any:
    return search(task, f"sqlite:///{database}", trials=count, **options)  # type: ignore[arg-type]  # a stand-in


TRIALS = 9
STATES: list[Progress] = []


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the database of a search that nothing stopped; `STATES` holds what it reported."""
    database = tmp_path_factory.mktemp("whole") / "tune.db"
    STATES.clear()
    run(Bowl(), database, TRIALS, report=STATES.append)
    return database


def test_the_first_trial_is_the_default_and_the_best_is_no_worse(whole: Path) -> None:
    task = Bowl()

    found = run(task, whole, TRIALS)

    first, *others = trials(whole)
    assert task.fitted == []
    assert first.params == values_of(Recipe())
    assert [each.finished for each in STATES] == list(range(1, TRIALS + 1))
    assert found.progress == STATES[-1]
    assert found.progress.best <= found.progress.default == pytest.approx(first.value)
    assert found.best.sum() / 15 == pytest.approx(found.progress.best)
    assert all(SPACE[name].low <= value <= SPACE[name].high for t in others for name, value in t.params.items())
    assert len({str(each.params) for each in (first, *others)}) == TRIALS


def test_a_trial_that_is_behind_at_a_cut_is_pruned(whole: Path) -> None:
    behind = [each for each in trials(whole) if each.state == TrialState.PRUNED]

    assert behind
    assert all(len(each.intermediate_values) < len(FOLDS) for each in behind)
    assert all(each.state == TrialState.COMPLETE for each in trials(whole)[:5])


@pytest.mark.slow
@pytest.mark.parametrize("stops", [(1, TRIALS), (4, 7, TRIALS)])
def test_a_search_goes_on_where_it_stopped(tmp_path: Path, whole: Path, stops: tuple[int, ...]) -> None:
    for count in stops:
        run(Bowl(), tmp_path / "tune.db", count)

    assert done(tmp_path / "tune.db") == done(whole)


@pytest.mark.slow
@pytest.mark.parametrize("at", [0, 1, 14])
def test_a_trial_that_was_interrupted_is_made_again(tmp_path: Path, whole: Path, at: int) -> None:
    def interrupt(count: int) -> None:
        if count == at:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        run(Bowl(before=interrupt), tmp_path / "tune.db", TRIALS)
    run(Bowl(), tmp_path / "tune.db", TRIALS)

    assert done(tmp_path / "tune.db") == done(whole)
    assert [each.state for each in trials(tmp_path / "tune.db")].count(TrialState.FAIL) == 1


def test_a_trial_left_running_is_marked_as_failed(tmp_path: Path, whole: Path) -> None:
    run(Bowl(), tmp_path / "tune.db", 3)
    left = optuna.load_study(study_name=Bowl.study, storage=f"sqlite:///{tmp_path}/tune.db").ask()

    run(Bowl(), tmp_path / "tune.db", TRIALS)

    assert trials(tmp_path / "tune.db")[left.number].state == TrialState.FAIL
    assert done(tmp_path / "tune.db") == done(whole)


def test_time_ends_a_search_after_the_default(tmp_path: Path) -> None:
    assert run(Bowl(), tmp_path / "tune.db", TRIALS, timeout_s=0.0).progress.finished == 1


def test_one_search_at_a_time(tmp_path: Path) -> None:
    def second(count: int) -> None:
        with pytest.raises(Busy, match="another `taut tune` is using"):
            run(Bowl(), tmp_path / "tune.db", 1)

    run(Bowl(before=second), tmp_path / "tune.db", 1)


def test_a_loss_that_is_no_number_ends_the_search(tmp_path: Path) -> None:
    task = SimpleNamespace(
        **{name: getattr(Bowl, name) for name in ("study", "model", "seed", "folds")},
        fold_loss=lambda recipe, fold: np.array([np.nan]),
    )

    with pytest.raises(TrainingError, match=r"runtime\.made\.ctr: the loss of .* is nan"):
        run(task, tmp_path / "tune.db", 3)  # type: ignore[arg-type]  # a stand-in


def test_a_file_that_is_no_database_is_refused(tmp_path: Path) -> None:
    (tmp_path / "tune.db").write_text("mine, and long enough to be looked at" * 50)

    with pytest.raises(BadUsage, match=r"--study-db .*expected a database of trials"):
        run(Bowl(), tmp_path / "tune.db", 1)
    assert (tmp_path / "tune.db").read_text().startswith("mine")
