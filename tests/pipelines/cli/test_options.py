"""The lake a command works on: the option, TAUT_LAKE, data/lake if it exists, else the demo's lake with a notice."""

from pathlib import Path

import pytest

from pipelines.cli.options import DEMO_LAKE, place_of


@pytest.fixture(autouse=True)
def _in_an_empty_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for variable in ("TAUT_LAKE", "TAUT_BUNDLES", "MLFLOW_TRACKING_URI"):
        monkeypatch.delenv(variable, raising=False)
    monkeypatch.chdir(tmp_path)


def test_without_any_lake_the_default_is_named() -> None:
    assert place_of(None).lake == Path("data/lake")


def test_the_demos_lake_is_used_with_one_notice(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    DEMO_LAKE.mkdir(parents=True)

    first, again = place_of(None), place_of(None)

    assert first == again
    assert (first.lake, first.bundles) == (DEMO_LAKE, tmp_path / "data" / "demo" / "bundles")
    assert capsys.readouterr().err.count("using the demo's") == 1


def test_another_lake_goes_before_the_demos(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    DEMO_LAKE.mkdir(parents=True)
    assert place_of(None, demo=False).lake == Path("data/lake")
    assert place_of(tmp_path / "own").lake == tmp_path / "own"

    monkeypatch.setenv("TAUT_LAKE", "set")
    assert place_of(None).lake == Path("set")

    monkeypatch.delenv("TAUT_LAKE")
    Path("data/lake").mkdir()
    assert place_of(None).lake == Path("data/lake")
    assert capsys.readouterr().err == ""
