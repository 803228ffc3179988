"""Folders for results: what cannot be written is refused before any work, and looking leaves nothing behind."""

import os
from collections.abc import Callable
from pathlib import Path

import pytest
from typer.testing import CliRunner

from pipelines.cli import app
from pipelines.errors import BadUsage
from pipelines.simulation.results_folder import fresh_folder, open_folder

Check = Callable[[Path], Path]


@pytest.mark.parametrize("check", [fresh_folder, open_folder])
def test_a_folder_that_can_be_made_is_not_made_yet(tmp_path: Path, check: Check) -> None:
    wanted = tmp_path / "a" / "b"

    assert check(wanted) == wanted
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("check", [fresh_folder, open_folder])
def test_an_empty_folder_is_taken_and_stays(tmp_path: Path, check: Check) -> None:
    assert check(tmp_path) == tmp_path
    assert tmp_path.is_dir()


@pytest.mark.parametrize("check", [fresh_folder, open_folder])
@pytest.mark.parametrize(
    ("name", "found"),
    [
        ("file", "found a file there"),
        ("file/below", "found a file there"),
        ("file/far/below", "found a file there"),
        ("x" * 300, "file name too long"),
        ("zero\0byte", "embedded null byte"),
        ("/proc/x", "no such file or directory"),
        ("dangling", "found a file there"),
    ],
)
def test_where_nothing_can_be_written_the_option_is_named(tmp_path: Path, check: Check, name: str, found: str) -> None:
    (tmp_path / "file").write_text("mine")
    (tmp_path / "dangling").symlink_to(tmp_path / "nowhere")

    with pytest.raises(BadUsage) as caught:
        check(tmp_path / name)

    said = str(caught.value)
    assert said.startswith(f"--out {tmp_path / name}: {found}")
    assert said.endswith("expected a writable folder; name another")
    assert "\n" not in said


def test_a_folder_without_leave_to_write_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "access", lambda folder, mode: False)

    with pytest.raises(BadUsage, match="found it read-only"):
        open_folder(tmp_path)


def test_a_folder_with_something_in_it_is_not_fresh(tmp_path: Path) -> None:
    (tmp_path / "mine").write_text("mine")

    assert open_folder(tmp_path) == tmp_path
    with pytest.raises(BadUsage, match="found files in it, expected a new or empty folder"):
        fresh_folder(tmp_path)


@pytest.mark.parametrize(
    "command",
    ["simulate", "study shrinking", "study shrinking-paper", "study replay", "study fragmentation"],
)
def test_every_command_that_writes_a_folder_refuses_it_before_it_opens_the_lake(tmp_path: Path, command: str) -> None:
    (tmp_path / "file").write_text("mine")
    bad = tmp_path / "file" / "below"

    result = CliRunner().invoke(app, [*command.split(), "--lake", str(tmp_path / "none"), "--out", str(bad)])

    assert result.exit_code == 2, result.stderr
    assert result.stderr.strip() == (f"taut: --out {bad}: found a file there, expected a writable folder; name another")
