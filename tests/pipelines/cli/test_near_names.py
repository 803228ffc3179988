"""Near names are suggested, DuckDB's hint is kept, the folder above a cluster is named, and arrays of jobs are read."""

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from modelserve.contract.requests import parse_lines
from modelserve.errors import BadRequest
from pipelines.cli import app
from pipelines.cli.opening import read_jobs
from pipelines.errors import BadUsage
from pipelines.lake.ingest import ingest
from tests.pipelines.conftest import PHILLY


@pytest.fixture(scope="module")
def lake(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a lake of four jobs of Philly."""
    folder = tmp_path_factory.mktemp("near")
    ingest("philly", PHILLY.write(folder / "philly"), folder / "lake")
    return folder / "lake"


def taut(*arguments: str) -> Result:
    return CliRunner().invoke(app, arguments)


@pytest.mark.parametrize(
    ("arguments", "hint"),
    [
        (["sql", "select statuss from jobs"], 'Candidate bindings: "status"'),
        (["sql", "select * from job"], 'Did you mean "jobs"?'),
        (["stats", "overclaim"], "did you mean 'over_claim'?"),
        (["rightsize", "--trace", "phily"], "did you mean 'philly'?"),
        (["train", "--type", "othr"], "did you mean 'other'?"),
    ],
)
def test_a_wrong_name_gets_the_near_one(lake: Path, arguments: list[str], hint: str) -> None:
    result = taut(*arguments, "--lake", str(lake))

    assert result.exit_code in (1, 2)
    assert hint in result.stderr.splitlines()[-1]


def test_the_folder_of_one_cluster_names_the_folder_above(tmp_path: Path) -> None:
    (tmp_path / "helios" / "Venus").mkdir(parents=True)
    (tmp_path / "helios" / "Venus" / "cluster_log.csv").write_text("")

    result = taut("ingest", "helios", "--from", str(tmp_path / "helios" / "Venus"), "--lake", str(tmp_path / "lake"))

    assert result.exit_code == 1
    assert f"expected the folder above: --from {tmp_path / 'helios'}" in result.stderr
    assert not (tmp_path / "lake").exists()


def test_jobs_come_as_lines_or_as_one_array() -> None:
    jobs = [{"job_id": name, "request": {"cpu_cores": 4, "mem_gib": 8, "gpus": 1}} for name in "ab"]
    lines = [json.dumps(job) + "\n" for job in jobs]

    assert parse_lines(json.dumps(jobs, indent=1).splitlines(keepends=True)) == parse_lines(lines)
    with pytest.raises(BadRequest, match=r"array of jobs, item counted from 0: 1\.request"):
        parse_lines([json.dumps([jobs[0], {"job_id": "b"}])])
    with pytest.raises(BadRequest, match="array of jobs"):
        parse_lines(["[\n", lines[0]])


@pytest.mark.parametrize("name", ["absent.jsonl", "."])
def test_a_file_that_cannot_be_read_is_named(tmp_path: Path, name: str) -> None:
    with pytest.raises(BadUsage, match="found no file of jobs that can be read; expected JSON lines"):
        read_jobs(str(tmp_path / name))
