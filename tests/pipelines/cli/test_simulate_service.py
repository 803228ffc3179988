"""`taut simulate --predictor URL`: a service's advice is simulated, and its absence is said rather than shown."""

import json
import re
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from pipelines.cli import app
from tests.modelserve.client.services import Answer, Row, answering, each, http, replying, serving
from tests.pipelines.cli.simulating import command

DOWN = replying(http(b"{}", "503 Service Unavailable"))


def models_until(*days: str, trace: str = "pai-synth", alias: str = "champion") -> bytes:
    """Return what a service says of its models: one for each day."""
    fields: Row = {"kind": "runtime", "trace": trace, "task_type": "ctr", "version": "1", "alias": alias, "digest": "d"}
    fields |= {"targets": ["run_s"], "quantiles": [0.5], "metrics": {}, "rows": 9, "features": 3}
    fields |= {"answer": "combined", "verdict": "better", "why": None}
    at = [{"until": f"{day}T00:00:00Z", "created": f"{day}T00:00:00Z"} for day in days]
    models = [{"name": f"runtime.{trace}.ctr", **fields, **when} for when in at]
    return http(json.dumps({"generation": 1, "models": models, "failures": []}).encode())


def simulated(
    lake: Path, *answers: Answer, models: bytes = b"", more: tuple[str, ...] = ()
) -> tuple[Result, list[Row]]:
    """Run `taut simulate` over a service that answers so; return its result, and the bodies it was sent."""
    with serving(*answers, without_body=models) as service:
        usual = ["--hours", "2", "--truth", "unchanged", "--format", "json"]
        where = ["--lake", str(lake), "--trace", "pai-synth", *usual]
        words = command(lake.parent, *where, "theta = 0.1", "--predictor", service.address, *more)
        return CliRunner().invoke(app, words, env={"TAUT_TOKEN": "s3cret"}), service.bodies


@pytest.mark.parametrize("mode", ["enforce", "observe"])
def test_the_advice_of_a_service_is_simulated_in_either_mode(lake: Path, mode: str) -> None:
    result, [body] = simulated(lake, each(mode=mode))
    assert result.exit_code == 0, result.stderr
    rows = {row["arm"]: row for row in json.loads(result.stdout) if row["devices"] == "all"}
    assert list(rows) == ["requested", "shrunk", "oracle"]
    assert rows["shrunk"]["reclaimed_cpu_core_h"] > rows["requested"]["reclaimed_cpu_core_h"] == 0.0
    assert (body["theta"], body["guard"], body.get("alpha")) == (0.1, "usage", None)


def test_the_least_share_goes_to_the_service_and_how_many_runs_are_sure_does_not(lake: Path) -> None:
    _, [body] = simulated(lake, answering(), more=("alpha0 = 0.3",))
    refused, bodies = simulated(lake, answering(), more=("sure_runs = 9",))

    assert body["alpha"] == 0.3
    assert (refused.exit_code, bodies) == (2, [])
    assert "TAUT_SERVE_TYPES" in refused.stderr


def test_jobs_without_an_answer_are_counted(lake: Path) -> None:
    def spoil(rows: list[Row]) -> list[Row]:
        rows[0]["target"]["mem_gib"] = -1.0
        return rows

    result, _ = simulated(lake, answering(spoil))
    assert result.exit_code == 0, result.stderr
    assert "1 of " in result.stderr
    assert "found the target mem_gib=-1.0" in " ".join(result.stderr.split())


def test_a_service_that_answers_about_no_job_ends_the_command(lake: Path) -> None:
    result, _ = simulated(lake, replying(http(b'{"title": "Unauthorized: s3cret"}', "401 Unauthorized")))
    assert result.exit_code == 1
    assert "found no answer for any job, nothing was simulated" in result.stderr
    assert "s3cret" not in result.stderr


def test_a_service_that_goes_away_before_the_second_guard_leaves_its_requests_standing(lake: Path) -> None:
    result, _ = simulated(lake, answering(), DOWN, more=("guard = ['usage', 'none']",))
    assert result.exit_code == 0, result.stderr
    rows = {row["arm"]: row for row in json.loads(result.stdout) if row["devices"] == "all"}
    assert rows["unguarded"]["cpu_allocated_frac"] == rows["requested"]["cpu_allocated_frac"]
    assert rows["shrunk"]["reclaimed_cpu_core_h"] > rows["requested"]["reclaimed_cpu_core_h"] == 0.0
    assert "(unguarded) got no answer and keep their requests" in result.stderr


@pytest.mark.slow
def test_jobs_that_the_services_models_may_know_are_counted(lake: Path) -> None:
    early, late, none = (
        simulated(lake, answering(), models=models_until(*days))[0].stderr
        for days in (("1970-01-20", "1970-01-15"), ("1970-01-20", "2030-01-01"), ("1969-01-01",))
    )
    assert "submitted before the training cut (1970-01-20 00:00 UTC); the models may" in early
    [count] = re.findall(r"(\d+ of \d+) jobs were submitted before the training cut \(2030-01-01", late)
    assert len(set(count.split(" of "))) == 1
    assert "cut" not in none


@pytest.mark.parametrize(
    "models",
    [
        b"",
        http(b"[]"),
        http(b"{}", "403 Forbidden"),
        models_until(),
        models_until("1970-01-20", trace="pai"),
        models_until("1970-01-20", alias="challenger"),
    ],
    ids=["closed", "no_list", "refused", "none", "of_another_trace", "no_champion"],
)
def test_a_service_that_does_not_tell_its_cut_is_said_to(lake: Path, models: bytes) -> None:
    result, _ = simulated(lake, answering(), models=models)
    assert result.exit_code == 0, result.stderr
    assert "cut unknown: the service's models may have been trained on these jobs" in result.stderr


def test_the_token_comes_from_a_file_too(lake: Path, tmp_path: Path) -> None:
    file = tmp_path / "token"
    file.write_text("of-a-file")
    with serving(answering()) as service:
        where = ("--lake", str(lake), "--trace", "pai-synth", "--hours", "2", "--predictor", service.address)
        words = command(tmp_path, *where, f"token_file = '{file}'")
        result = CliRunner().invoke(app, words, env={"TAUT_TOKEN": "s3cret"})
    assert result.exit_code == 0, result.stderr
    assert "authorization: Bearer of-a-file" in service.heads[0]
