"""`taut place` and `taut explain-pending`: rows in every format, stdin, and errors in one line."""

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from pipelines.cli import app

CLUSTER = {
    "machines": [
        {"machine": "m1", "cpu_cores": 16, "mem_gib": 64, "gpus": 2},
        {"machine": "m2", "cpu_cores": 16, "mem_gib": 64, "gpus": 2},
    ],
    "running": [{"job_id": "r1", "request": {"gpus": 0.5}, "on": [{"machine": "m1", "devices": [0]}]}],
    "jobs": [
        {"job_id": "a1", "request": {"gpus": 0.5}, "instances": 2},
        {"job_id": "a2", "request": {"cpu_cores": 20}},
    ],
}


def test_jobs_that_must_end_are_one_cell_of_names() -> None:
    running = [{"job_id": f"r{at}", "request": {"gpus": 2}, "on": [{"machine": f"m{at}"}]} for at in (1, 2)]
    waits = [{"job_id": "a1", "request": {"gpus": 1}, "instances": 4}]
    cluster = {**CLUSTER, "running": running, "jobs": waits}
    done = CliRunner().invoke(app, ["explain-pending", "-"], input=json.dumps(cluster))

    [row] = json.loads(done.stdout)
    assert row["must_end"] == "r1; r2"


@pytest.mark.parametrize(
    ("text", "status", "message"),
    [
        ("{", 1, "-: not valid JSON: "),
        (json.dumps({**CLUSTER, "jobs": []}), 1, "-: jobs: "),
        (json.dumps({**CLUSTER, "a\nb\x1b[31m": 1}), 1, "-: a\\nb\\x1b[31m: no such field\n"),
        (json.dumps({**CLUSTER, "jobs": [{"job_id": ""}]}), 1, "-: jobs.0.job_id: expected text of at least 1"),
        (
            json.dumps({**CLUSTER, "jobs": [{**CLUSTER["jobs"][0], "x": 1}]}),
            1,
            "-: jobs.0.x: no such field\n",
        ),
        (json.dumps({**CLUSTER, "machines": CLUSTER["machines"][:1] * 2}), 1, "machines.1.machine: found 'm1' twice"),
        (" " * (16 * 2**20 + 1), 2, "-: found more than 16777216 bytes"),
    ],
)
def test_bad_input_is_refused_in_one_line(text: str, status: int, message: str) -> None:
    done = CliRunner().invoke(app, ["place", "-"], input=text)

    assert (done.exit_code, done.stderr.count("\n")) == (status, 1)
    assert done.stderr.startswith(f"taut: {message}")


def test_an_unknown_job_or_file_is_refused(tmp_path: Path) -> None:
    job = CliRunner().invoke(app, ["explain-pending", "-", "--job", "r1"], input=json.dumps(CLUSTER))
    file = CliRunner().invoke(app, ["place", str(tmp_path / "none.json")])

    assert (job.exit_code, file.exit_code) == (1, 2)
    assert "explain.0: found 'r1', expected the id of a job in `jobs`" in job.stderr
