"""Addresses of lakes that cannot be opened: one line with the cure, without the network."""

import sys
from pathlib import Path

import pytest
from fsspec.registry import _registry as loaded
from typer.testing import CliRunner

from pipelines.cli import app
from tests.pipelines.conftest import PAI

COMMANDS = {"ingest": ["ingest", "pai", "--from", "raw"], "sql": ["sql", "SELECT 1"]}


@pytest.fixture(autouse=True)
def files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    PAI.write(tmp_path / "raw")
    monkeypatch.chdir(tmp_path)


def refusal(command: str, lake: str) -> str:
    result = CliRunner().invoke(app, [*COMMANDS[command], "--lake", lake])
    assert result.exit_code == 2, result.output
    assert result.stdout == ""
    return result.stderr.strip().splitlines()[-1]


@pytest.mark.parametrize("command", COMMANDS)
@pytest.mark.parametrize("absent", ["s3fs", "fsspec"])
def test_without_the_packages_for_buckets_the_cure_is_to_install_them(
    monkeypatch: pytest.MonkeyPatch, command: str, absent: str
) -> None:
    monkeypatch.setitem(sys.modules, absent, None)  # importing it raises ImportError
    monkeypatch.delitem(loaded, "s3", raising=False)

    found = refusal(command, "s3://fleet/lake")

    assert found == "taut: a lake at s3://fleet/lake needs the package s3fs: pip install 'taut[s3]'"


@pytest.mark.parametrize("command", COMMANDS)
@pytest.mark.parametrize(
    ("lake", "said"),
    [
        ("gs://fleet/lake", "gs://...: unknown scheme"),
        ("https://user:word@host/lake", "https://...: unknown scheme"),
        ("s3://key:word@fleet/lake", "s3://...: invalid address"),
    ],
)
def test_an_unknown_scheme_is_refused_with_what_is_expected(command: str, lake: str, said: str) -> None:
    expected = "expected a folder, or s3://BUCKET/PREFIX; AWS_ENDPOINT_URL names a store other than AWS"
    assert refusal(command, lake) == f"taut: a lake at {said}; {expected}"
