import json
import logging
import os
import shutil
import signal
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from modelserve.bundle.registry import Mirrored
from modelserve.errors import MirrorError
from modelserve.loading import sync as module
from modelserve.loading.sync import KEPT_VERSIONS, LEFTOVER_S, STATE, Sync, SyncState, prune, read_state
from modelserve.settings import ServeSettings
from tests.modelserve.mirrored import NAME, USAGE, Folder

NOW = 1.7e9
ABSENT = "sqlite:////nowhere/at-all/mlflow.db"


def settings_of(bundles: Path, **changes: object) -> ServeSettings:
    return ServeSettings(bundles=bundles, **{"tracking_uri": ABSENT, "mirror_every_s": 0.01, **changes})


class Registry:
    """A registry that answers what it is told to."""

    def __init__(self) -> None:
        self.answers: list[list[Mirrored] | Exception] = []

    def mirror(self, uri: str, folder: Path, *, verified: object) -> list[Mirrored]:
        answer = self.answers.pop(0) if len(self.answers) > 1 else self.answers[0]
        if isinstance(answer, Exception):
            raise answer
        return answer


@pytest.fixture
def registry(monkeypatch: pytest.MonkeyPatch) -> Registry:
    made = Registry()
    monkeypatch.setattr(module, "mirror", made.mirror)
    return made


def mirrored(outcome: str, detail: str = "") -> Mirrored:
    return Mirrored(name=NAME, version="1", outcome=outcome, detail=detail)


def test_champions_are_mirrored_and_the_round_is_written_down(registry: Registry, tmp_path: Path) -> None:
    registry.answers = [[mirrored("fetched")]]

    done = Sync(settings_of(tmp_path), clock=lambda: 77.0).once()

    assert [each.outcome for each in done] == ["fetched"]
    assert json.loads((tmp_path / STATE).read_text()) == {
        "at": 77.0,
        "attempted_at": 77.0,
        "error": None,
        "failing": [],
    }


def test_a_registry_away_keeps_when_it_last_went_well(registry: Registry, tmp_path: Path) -> None:
    registry.answers = [[mirrored("present")]]
    Sync(settings_of(tmp_path), clock=lambda: 50.0).once()
    registry.answers = [MirrorError("registry x: no connection")]

    with pytest.raises(MirrorError, match="no connection"):
        Sync(settings_of(tmp_path), clock=lambda: 90.0).once()

    state = read_state(tmp_path)
    assert (state.at, state.attempted_at, state.error) == (50.0, 90.0, "registry x: no connection")


def test_a_model_that_cannot_be_fetched_is_named(registry: Registry, tmp_path: Path) -> None:
    registry.answers = [[mirrored("failed", detail="its files cannot be had")]]

    Sync(settings_of(tmp_path)).once()

    state = read_state(tmp_path)
    assert state.failing == (f"{NAME}: its files cannot be had",)
    assert state.error is None  # whoever may not see the model may see the error


def test_without_a_registry_there_is_nothing_to_mirror(tmp_path: Path) -> None:
    with pytest.raises(MirrorError, match="TAUT_SERVE_TRACKING_URI"):
        Sync(settings_of(tmp_path, tracking_uri=None)).once()


@pytest.mark.parametrize("written", ["", "{", '{"at": "then"}', "[]"])
def test_a_state_that_makes_no_sense_is_none(tmp_path: Path, written: str) -> None:
    (tmp_path / STATE).write_text(written)

    assert read_state(tmp_path) == SyncState()


def test_only_changes_are_logged(registry: Registry, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    away = MirrorError("registry x: no connection")
    fetched, present = [mirrored("fetched")], [mirrored("present")]
    registry.answers = [fetched, fetched, present, present, away, away, away, present, present, present]
    stop, rounds = threading.Event(), []

    def draw() -> float:
        rounds.append(1)
        if len(rounds) == 8:
            stop.set()
        return 1.0

    with caplog.at_level(logging.INFO, logger="modelserve.loading.sync"):
        Sync(settings_of(tmp_path)).until(stop, draw=draw)

    assert [record.getMessage() for record in caplog.records] == [
        f"{NAME}@1 fetched",
        "registry x: no connection",
        "registry is available again",
    ]


def test_old_versions_go_and_those_pointed_at_or_newest_stay(folder: Folder) -> None:
    for version in range(2, 12):
        (folder.path / NAME / str(version)).mkdir()
    folder.add(USAGE, "1")
    shutil.copytree(folder.path / NAME / "1", folder.path / NAME / "3", dirs_exist_ok=True)
    folder.point(NAME, "3")

    gone = prune(folder.path, NAME, now=NOW)

    assert gone == ["1", "2", "4", "5", "6"]
    held = sorted(int(each.name) for each in (folder.path / NAME).iterdir() if each.is_dir())
    assert held == [3, 7, 8, 9, 10, 11]
    assert len(held) == KEPT_VERSIONS + 1
    assert prune(folder.path, USAGE, now=NOW) == []


def test_nothing_goes_while_a_pointer_cannot_be_read(folder: Folder) -> None:
    for version in range(2, 12):
        (folder.path / NAME / str(version)).mkdir()
    (folder.path / NAME / "champion.json").write_text("{")

    assert prune(folder.path, NAME, now=NOW) == []


def test_only_old_folders_of_downloads_are_removed(folder: Folder) -> None:
    old, new = (folder.path / NAME / each for each in (".2.old", ".2.new"))
    for place, age_s in ((old, LEFTOVER_S + 1), (new, LEFTOVER_S - 1)):
        place.mkdir()
        (place / "model").write_text("{")
        os.utime(place, (NOW - age_s, NOW - age_s))

    assert prune(folder.path, NAME, now=NOW) == []

    assert (old.exists(), new.exists()) == (False, True)


IN_A_QUERY = """
import time
from modelserve.loading import sync
def query(*_, **__):
    print("in a query", flush=True)
    try:
        time.sleep(600)
    except BaseException as error:
        print("interrupted by", type(error).__name__, flush=True)
        raise
sync.mirror = query
sync.main()
"""


@pytest.mark.slow
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_in_a_query_of_the_registry_ends_the_process_without_a_word(
    tmp_path: Path, number: signal.Signals
) -> None:
    environment = {**os.environ, "TAUT_SERVE_BUNDLES": str(tmp_path), "TAUT_SERVE_TRACKING_URI": ABSENT}
    process = subprocess.Popen(
        [sys.executable, "-c", IN_A_QUERY], env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    try:
        assert process.stdout.readline() == "in a query\n"
        process.send_signal(number)
        said = process.communicate(timeout=60)
    finally:
        process.kill()

    assert (process.returncode, said) == (0, ("", ""))
