"""What somebody might put into a folder of bundles: it is refused, what serves goes on, and nothing of it is run."""

import io
import json
import os
import pickle
import shutil
from collections.abc import Callable
from pathlib import Path

import polars as pl
import pytest

from modelserve.bundle.bundle import HISTORY_ROWS_LIMIT
from modelserve.loading.models import ModelSet
from tests.modelserve.mirrored import NAME, USAGE, Folder, models_of, reseal


class Trap:
    """Something that leaves a file behind if it is ever unpickled."""

    def __init__(self, place: Path) -> None:
        self.place = place

    def __reduce__(self) -> tuple[object, tuple[str]]:
        return os.system, (f"touch {self.place}",)


def put(name: str, data: bytes) -> Callable[[Path, Path], None]:
    def change(place: Path, outside: Path) -> None:
        (place / name).write_bytes(data)
        reseal(place, surplus=True)

    return change


def pickled(name: str) -> Callable[[Path, Path], None]:
    def change(place: Path, outside: Path) -> None:
        (place / name).write_bytes(pickle.dumps(Trap(outside / "sprung")))
        reseal(place, surplus=True)

    return change


def linked(name: str) -> Callable[[Path, Path], None]:
    def change(place: Path, outside: Path) -> None:
        kept = outside / Path(name).name
        shutil.move(place / name, kept)
        (place / name).symlink_to(kept)

    return change


def piped(name: str) -> Callable[[Path, Path], None]:
    def change(place: Path, outside: Path) -> None:
        (place / name).unlink()
        os.mkfifo(place / name)

    return change


def grown(name: str, size: int) -> Callable[[Path, Path], None]:
    def change(place: Path, outside: Path) -> None:
        with (place / name).open("ab") as file:
            file.truncate(size)

    return change


def whole_folder_linked(place: Path, outside: Path) -> None:
    shutil.move(place, outside / "elsewhere")
    place.symlink_to(outside / "elsewhere")


def nested(place: Path, outside: Path) -> None:
    (place / "models" / "/".join("d" * 200)).mkdir(parents=True)


def checksums_of_another(place: Path, outside: Path) -> None:
    shutil.copy(place.parent.parent / USAGE / "1" / "checksums.json", place / "checksums.json")


def unknown_feature(place: Path, outside: Path) -> None:
    contract = json.loads((place / "contract.json").read_text())
    contract["names"][0] = "telepathy"
    (place / "contract.json").write_text(json.dumps(contract))
    reseal(place)


def history_of(frame: pl.DataFrame) -> bytes:
    written = io.BytesIO()
    frame.write_parquet(written)
    return written.getvalue()


def too_many_rows(place: Path, outside: Path) -> None:
    frame = pl.DataFrame({"trace": pl.repeat("pai", HISTORY_ROWS_LIMIT + 1, eager=True)})
    put("history.parquet", history_of(frame))(place, outside)


def another_trace(place: Path, outside: Path) -> None:
    frame = pl.read_parquet(place / "history.parquet").with_columns(trace=pl.lit("helios"))
    put("history.parquet", history_of(frame))(place, outside)


HOSTILE: dict[str, Callable[[Path, Path], None]] = {
    "pickle as a model": pickled("models/run_s.ubj"),
    "pickle as a history": pickled("history.parquet"),
    "pickle as a card": pickled("card.json"),
    "pickle beside": pickled("model.pkl"),
    "linked model": linked("models/run_s.ubj"),
    "linked history": linked("history.parquet"),
    "linked models": linked("models"),
    "linked bundle": whole_folder_linked,
    "pipe as a card": piped("card.json"),
    "pipe as a model": piped("models/run_s.ubj"),
    "card too large": grown("card.json", 2 << 20),
    "contract too large": grown("contract.json", 17 << 20),
    "importances too large": grown("importances.json", 2 << 20),
    "folders without end": nested,
    "card nested without end": put("card.json", b"[" * 500_000),
    "contract nested without end": put("contract.json", b"[" * 500_000),
    "importances nested without end": put("importances.json", b"[" * 500_000),
    "model nested without end": put("models/run_s.ubj", b"[" * 500_000),
    "model of nothing": put("models/run_s.ubj", b""),
    "contract of numbers": put("contract.json", b'{"names": 1}'),
    "contract of another shape": put(
        "contract.json",
        b'{"names": [{}], "dtypes": 3, "kinds": [], "units": [], "categories": {"a": 1}, "fingerprint": ""}',
    ),
    "history of nothing": put("history.parquet", b""),
    "history of too many rows": too_many_rows,
    "history of another trace": another_trace,
    "checksums of another bundle": checksums_of_another,
    "contract with an unknown feature": unknown_feature,
}


@pytest.mark.parametrize("change", HOSTILE.values(), ids=HOSTILE)
def test_a_hostile_bundle_is_refused_and_the_old_one_serves_on(
    folder: Folder, change: Callable[[Path, Path], None], tmp_path_factory: pytest.TempPathFactory
) -> None:
    outside = tmp_path_factory.mktemp("outside")
    models: ModelSet = models_of(folder.path)
    models.refresh()
    before = models.current.champions[NAME]
    place = folder.add(NAME, "2")
    change(place, outside)
    folder.point(NAME, "2")

    [reload] = models.refresh()

    assert (reload.name, reload.version, reload.result) == (NAME, "2", "failed")
    assert models.current.champions[NAME] is before
    assert 10 < len(models.current.failures[NAME]) <= 500
    assert "Error" not in models.current.failures[NAME].split(":")[1], "told in our words, not as a foreign exception"
    assert not (outside / "sprung").exists()


@pytest.mark.parametrize("kind", ["pipe", "link", "folder", "large", "pickle", "deep"])
def test_a_hostile_pointer_is_refused_and_the_old_model_serves_on(
    folder: Folder, kind: str, tmp_path_factory: pytest.TempPathFactory
) -> None:
    outside = tmp_path_factory.mktemp("outside")
    models: ModelSet = models_of(folder.path)
    models.refresh()
    pointer = folder.path / NAME / "champion.json"
    pointer.unlink()
    if kind == "pipe":
        os.mkfifo(pointer)
    elif kind == "link":
        pointer.symlink_to("/dev/zero")
    elif kind == "folder":
        pointer.mkdir()
    else:
        trap = pickle.dumps(Trap(outside / "sprung"))
        contents = {"large": b'"' + b"x" * 10_000_000 + b'"', "pickle": trap, "deep": b"[" * 60_000}
        pointer.write_bytes(contents[kind])

    [reload] = models.refresh()

    assert reload.result == "failed"
    assert models.current.champions[NAME].reference == "runtime.pai.ctr@1"
    assert not (outside / "sprung").exists()


def test_folders_that_are_no_models_are_passed_over(folder: Folder) -> None:
    for name in ("..x", "runtime.pai.c tr", "runtime..ctr", "runtime.pai.ctr.x", ".runtime.pai.nlp"):
        (folder.path / name).mkdir()
        (folder.path / name / "champion.json").write_text("{}")
    (folder.path / "runtime.pai.nlp").write_text("no folder")

    models = models_of(folder.path)
    models.refresh()

    assert (sorted(models.current.champions), models.current.failures) == ([NAME, USAGE], {})
