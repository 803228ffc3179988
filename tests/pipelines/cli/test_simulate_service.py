"""`taut simulate --predictor URL`: a service's advice is simulated, and its absence is said rather than shown."""

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from pipelines.cli import app
from pipelines.ingest import ingest
from pipelines.synth.pai import synthesise
from tests.scheduler_core.services import Answer, Row, answering, each, http, replying, serving


@pytest.fixture(scope="module")
def lake(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a lake of one synthetic trace."""
    folder = tmp_path_factory.mktemp("service")
    synthesise(folder / "raw", tasks=1000, seed=3, tagged_share=0.9)
    ingest("pai", folder / "raw", folder / "lake", as_name="pai-synth")
    return folder / "lake"


def simulated(lake: Path, answer: Answer) -> tuple[Result, list[Row]]:
    """Run `taut simulate` over a service that answers so; return its result, and the bodies it was sent."""
    with serving(answer) as service:
        where = ["--lake", str(lake), "--hours", "2", "--truth", "unchanged", "--format", "json"]
        command = ["simulate", *where, "--theta", "0.1", "--predictor", service.address]
        return CliRunner().invoke(app, command, env={"TAUT_TOKEN": "s3cret"}), service.bodies


@pytest.mark.parametrize("mode", ["enforce", "observe"])
def test_the_advice_of_a_service_is_simulated_in_either_mode(lake: Path, mode: str) -> None:
    result, [body] = simulated(lake, each(mode=mode))
    assert result.exit_code == 0, result.stderr
    rows = {row["arm"]: row for row in json.loads(result.stdout) if row["devices"] == "all"}
    assert list(rows) == ["requested", "shrunk", "oracle"]
    assert rows["shrunk"]["cpu_allocated_frac"] < rows["requested"]["cpu_allocated_frac"]
    assert (body["theta"], body["guard"]) == (0.1, "usage")


def test_jobs_without_an_answer_are_counted(lake: Path) -> None:
    def spoil(rows: list[Row]) -> list[Row]:
        rows[0]["target"]["mem_gib"] = -1.0
        return rows

    result, _ = simulated(lake, answering(spoil))
    assert result.exit_code == 0, result.stderr
    assert "1 of " in result.stderr
    assert "found target.mem_gib=-1.0" in " ".join(result.stderr.split())


def test_a_service_that_answers_about_no_job_ends_the_command(lake: Path) -> None:
    result, _ = simulated(lake, replying(http(b'{"title": "Unauthorized: s3cret"}', "401 Unauthorized")))
    assert result.exit_code == 1
    assert "no job was answered about" in result.stderr
    assert "s3cret" not in result.stderr


def test_the_token_comes_from_a_file_too(lake: Path, tmp_path: Path) -> None:
    file = tmp_path / "token"
    file.write_text("of-a-file")
    with serving(answering()) as service:
        command = ["simulate", "--lake", str(lake), "--hours", "2", "--predictor", service.address]
        result = CliRunner().invoke(app, [*command, "--token-file", str(file)], env={"TAUT_TOKEN": "s3cret"})
    assert result.exit_code == 0, result.stderr
    assert "authorization: Bearer of-a-file" in service.heads[0]
