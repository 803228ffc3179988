import threading
from collections.abc import Iterable
from pathlib import Path

import pytest

from modelserve.bundle.predictor import entry_of
from modelserve.loading.models import RETRY_S
from tests.modelserve.mirrored import NAME, USAGE, Clock, Folder, models_of


def results(reloads: Iterable[object]) -> dict[str, str]:
    return {each.name: each.result for each in reloads}


def test_every_pointer_is_followed_and_nothing_moved_does_nothing(folder: Folder) -> None:
    models = models_of(folder.path)
    assert (models.current.generation, models.current.champions) == (0, {})

    done = models.refresh()
    snapshot = models.current

    assert results(done) == {NAME: "loaded", USAGE: "loaded"}
    assert {name: model.reference for name, model in snapshot.champions.items()} == {
        NAME: "runtime.pai.ctr@1",
        USAGE: "usage.pai.ctr@1",
    }
    assert (snapshot.generation, snapshot.failures) == (1, {})
    assert models.refresh() == []
    assert models.current is snapshot


def test_a_moved_pointer_swaps_one_model_and_keeps_the_others(folder: Folder, other_version: Path) -> None:
    models = models_of(folder.path)
    models.refresh()
    before = models.current
    folder.add(NAME, "2", source=other_version)

    [reload] = models.refresh()

    assert (reload.name, reload.version, reload.result) == (NAME, "2", "loaded")
    assert models.current.generation == 2
    assert models.current.champions[NAME].reference == "runtime.pai.ctr@2"
    assert models.current.champions[USAGE] is before.champions[USAGE]
    assert before.champions[NAME].reference == "runtime.pai.ctr@1"


def test_a_pointer_that_is_gone_withdraws_its_model(folder: Folder) -> None:
    models = models_of(folder.path)
    models.refresh()
    (folder.path / NAME / "champion.json").unlink()

    [reload] = models.refresh()

    assert (reload.name, reload.version, reload.result) == (NAME, "1", "withdrawn")
    assert list(models.current.champions) == [USAGE]
    assert models.refresh() == []


def test_a_model_answers_by_workload_first_then_by_task_type(folder: Folder) -> None:
    models = models_of(folder.path)
    models.refresh()
    snapshot = models.current

    assert entry_of(snapshot.champions, "runtime", "pai", "ctr", "other") is snapshot.champions[NAME]
    assert entry_of(snapshot.champions, "usage", "pai", "bert", "ctr") is snapshot.champions[USAGE]
    assert entry_of(snapshot.champions, "runtime", "pai", None, "nlp") is None
    assert entry_of(snapshot.champions, "runtime", "helios", None, "ctr") is None


def test_a_broken_version_leaves_the_old_one_serving_and_is_not_tried_every_time(
    folder: Folder, other_version: Path
) -> None:
    clock = Clock()
    models = models_of(folder.path, clock=clock)
    models.refresh()
    place = folder.add(NAME, "2", source=other_version)
    whole = (place / "contract.json").read_bytes()
    (place / "contract.json").write_bytes(whole[:-9])

    [reload] = models.refresh()

    assert (reload.result, reload.version) == ("failed", "2")
    assert "contract.json" in reload.detail
    assert models.current.champions[NAME].reference == "runtime.pai.ctr@1"
    assert models.current.failures == {NAME: reload.detail}
    assert entry_of(models.current.failures, "runtime", "pai", None, "ctr") == reload.detail
    assert entry_of(models.current.failures, "usage", "pai", None, "ctr") is None
    assert models.refresh() == []

    clock.now += RETRY_S
    assert [each.result for each in models.refresh()] == ["failed"]
    assert models.refresh() == []

    (place / "contract.json").write_bytes(whole)
    [mended] = models.refresh()

    assert (mended.result, models.current.failures) == ("loaded", {})
    assert models.current.champions[NAME].reference == "runtime.pai.ctr@2"


def test_a_model_that_falls_over_while_it_is_warmed_keeps_the_old_one(
    folder: Folder, other_version: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fall_over(model: object) -> None:
        raise KeyError("a fault of our own")

    models = models_of(folder.path)
    models.refresh()
    monkeypatch.setattr("modelserve.loading.models.warm", fall_over)
    folder.add(NAME, "2", source=other_version)

    [reload] = models.refresh()

    assert reload.result == "failed"
    assert "KeyError" in models.current.failures[NAME]
    assert models.current.champions[NAME].reference == "runtime.pai.ctr@1"


def test_a_folder_that_is_away_withdraws_nothing(folder: Folder, tmp_path: Path) -> None:
    models = models_of(folder.path)
    models.refresh()
    hidden = folder.path.with_name("hidden")
    folder.path.rename(hidden)

    [reload] = models.refresh()

    assert (reload.result, list(models.current.champions)) == ("failed", [NAME, USAGE])
    assert list(models.current.failures) == ["bundles"]
    assert models.refresh() == []

    hidden.rename(folder.path)
    assert models.refresh() == []
    assert (models.current.failures, list(models.current.champions)) == ({}, [NAME, USAGE])


def test_no_answer_combines_two_versions_while_pointers_move(folder: Folder, other_version: Path) -> None:
    folder.add(NAME, "2", source=other_version)
    models = models_of(folder.path)
    models.refresh()
    expected = {"1": 0.0, "2": 0.5}
    stop, wrong, seen = threading.Event(), [], set()

    def read() -> None:
        last = 0
        while not stop.is_set():
            snapshot = models.current
            model = snapshot.champions[NAME]
            if expected[model.bundle.version] != model.bundle.card.offsets["p50"] or snapshot.generation < last:
                wrong.append((model.reference, snapshot.generation, last))
            last = snapshot.generation
            seen.add(model.reference)

    readers = [threading.Thread(target=read) for _ in range(4)]
    for reader in readers:
        reader.start()
    for turn in range(4):
        folder.point(NAME, str(turn % 2 + 1))
        assert [each.result for each in models.refresh()] == ["loaded"]
    stop.set()
    for reader in readers:
        reader.join(timeout=10)

    assert wrong == []
    assert seen == {"runtime.pai.ctr@1", "runtime.pai.ctr@2"}
