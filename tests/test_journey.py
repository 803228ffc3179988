"""The whole way of a user, command by command, on a small synthetic trace."""

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from pipelines.cli import app

JOB = {
    "job_id": "a1",
    "task_type": "ctr",
    "user": "nobody",
    "gpu_type": "T4",
    "instances": 4,
    "request": {"cpu_cores": 6, "mem_gib": 29.3, "gpus": 0.5},
}
EVALUATED = {
    "model", "task_type", "split", "n", "mae_h", "wmape", "wmape_48h", "pinball", "pinball_lo", "pinball_hi",
    "pinball_p50", "coverage_p90", "within_2x", "lead", "lead_lo", "lead_hi",
}  # fmt: skip


def taut(*arguments: str, lake: Path, stdin: str | None = None, fails: int = 0) -> list[dict[str, object]]:
    result = CliRunner().invoke(app, [*arguments, "--lake", str(lake), "--format", "json"], input=stdin)
    assert result.exit_code == fails, result.stderr
    rows: list[dict[str, object]] = json.loads(result.stdout)
    return rows


@pytest.mark.slow
def test_from_published_files_to_a_simulated_cluster(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("MLFLOW_TRACKING_URI", "TAUT_TRACE", "TAUT_LAKE", "TAUT_BUNDLES"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("TAUT_THREADS", "1")
    raw, lake = tmp_path / "raw", tmp_path / "lake"
    made = CliRunner().invoke(app, ["synth", "pai", "--to", str(raw), "--tasks", "3000", "--tagged-share", "0.9"])
    assert made.exit_code == 0, made.stderr

    ingested = taut("ingest", "pai", "--from", str(raw), "--as", "pai-synth", lake=lake)
    counted = taut("sql", "select count(*) as n from jobs", lake=lake)
    trained = taut("train", lake=lake)
    judged = taut("evaluate", "--type", "nlp", lake=lake)
    promoted = taut("promote", "--force", lake=lake)
    listed = taut("models", lake=lake)
    predicted = taut("predict", "-", lake=lake, stdin=json.dumps(JOB))
    advised = taut("recommend", "-", "--offline", lake=lake, stdin=json.dumps(JOB))
    simulated = taut("simulate", "--offline", "--hours", "2", lake=lake)

    assert sum(int(str(r["rows_quarantined"])) for r in ingested) == 0
    assert counted == [{"n": 3000}]
    assert {"runtime.pai-synth.nlp", "usage.pai-synth.nlp"} <= {r["name"] for r in trained}
    assert {r["model"] for r in judged} >= {"xgboost", "forest", "group_median", "global_median", "recent_20"}
    assert set(judged[0]) >= EVALUATED
    assert {r["name"] for r in promoted} == {r["name"] for r in trained}
    assert all("champion" in str(r["aliases"]) for r in listed)
    assert float(str(predicted[0]["run_time_p50_s"])) <= float(str(predicted[0]["run_time_p90_s"]))
    assert float(str(advised[0]["mem_gib_target"])) <= 29.3
    assert {r["arm"] for r in simulated} == {"requested", "shrunk", "oracle"}


@pytest.mark.slow
def test_without_a_champion_the_answer_says_what_to_do(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("MLFLOW_TRACKING_URI", raising=False)
    jobs = tmp_path / "jobs.jsonl"
    jobs.write_text(json.dumps(JOB))

    result = CliRunner().invoke(app, ["recommend", str(jobs), "--lake", str(tmp_path / "lake"), "--trace", "pai"])

    assert result.exit_code == 1
    assert result.stdout == ""
    assert "taut promote" in result.stderr.splitlines()[-1]
