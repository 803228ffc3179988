import json
import shutil
from pathlib import Path

import pytest

from modelserve.bundle.bundle import read_bundle
from modelserve.bundle.champions import (
    Pointer,
    read_champion,
    read_champions,
    read_pointer,
    version_folder,
    write_pointer,
)
from modelserve.errors import BundleError

NAME = "runtime.pai.ctr"


@pytest.fixture
def folder(small_bundles: dict[str, Path], tmp_path: Path) -> Path:
    for kind, version in (("runtime", "7"), ("usage", "3")):
        name = f"{kind}.pai.ctr"
        shutil.copytree(small_bundles[kind], tmp_path / name / version)
        digest = read_bundle(small_bundles[kind]).digest
        write_pointer(tmp_path, Pointer(name=name, version=version, run_id=None, digest=digest))
    return tmp_path


def test_every_champion_is_read_with_its_version(folder: Path) -> None:
    champions = read_champions(folder)

    assert [bundle.reference for bundle in champions.bundles.values()] == ["runtime.pai.ctr@7", "usage.pai.ctr@3"]
    assert champions.failures == {}


def test_one_damaged_model_keeps_no_other_from_serving(folder: Path) -> None:
    (folder / NAME / "7" / "contract.json").write_text("{}")

    champions = read_champions(folder)

    assert list(champions.bundles) == ["usage.pai.ctr"]
    assert "contract.json" in champions.failures[NAME]


@pytest.mark.parametrize(
    "change",
    [
        {"version": "../usage.pai.ctr/3"},
        {"version": "8"},
        {"name": "usage.pai.ctr"},
        {"digest": "0" * 64},
        {"surplus": 1},
    ],
    ids=str,
)
def test_a_pointer_that_was_changed_serves_nothing(folder: Path, change: dict[str, object]) -> None:
    place = folder / NAME / "champion.json"
    place.write_text(json.dumps({**json.loads(place.read_text()), **change}))

    with pytest.raises(BundleError):
        read_champion(folder, NAME)


def test_a_pointer_to_another_models_bundle_serves_nothing(folder: Path) -> None:
    shutil.rmtree(folder / NAME / "7")
    shutil.copytree(folder / "usage.pai.ctr" / "3", folder / NAME / "7")

    with pytest.raises(BundleError, match=r"bundle usage\.pai\.ctr"):
        read_champion(folder, NAME)


def test_a_model_never_mirrored_has_no_pointer(tmp_path: Path) -> None:
    assert read_pointer(tmp_path, NAME) is None
    with pytest.raises(BundleError, match="promote and mirror"):
        read_champion(tmp_path, NAME)


def test_a_pointer_moves_whole_and_leaves_nothing_beside(folder: Path) -> None:
    before = read_pointer(folder, NAME)

    write_pointer(folder, before.model_copy(update={"version": "8"}))

    assert read_pointer(folder, NAME).version == "8"
    assert sorted(p.name for p in (folder / NAME).iterdir()) == ["7", "champion.json"]


@pytest.mark.parametrize(
    "name", ["..", "runtime.pai", "runtime.pai.ctr/..", "runtime.pai.a b", "x.pai.ctr", "runtime.pai.ctr\n"]
)
def test_a_name_that_is_no_model_has_no_folder(tmp_path: Path, name: str) -> None:
    with pytest.raises(BundleError, match="expected <runtime"):
        version_folder(tmp_path, name, "1")


@pytest.mark.parametrize("version", ["", "..", "1/2", "-1", "latest", "1" * 13, "²"])
def test_a_version_that_is_no_number_has_no_folder(tmp_path: Path, version: str) -> None:
    with pytest.raises(BundleError, match="expected a number"):
        version_folder(tmp_path, NAME, version)
