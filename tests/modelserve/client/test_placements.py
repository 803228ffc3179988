"""Placements, explanations and reservations of a real service, by the client and by the commands."""

import json
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest
from typer.testing import CliRunner

from modelserve.api.app import create_app
from modelserve.client import Client
from modelserve.contract.placements import MAX_EXPLAINED
from modelserve.errors import BadRequest
from modelserve.service import open_service
from modelserve.settings import ServeSettings
from pipelines.cli import app
from tests.modelserve.api.test_placements import cluster
from tests.modelserve.running import serving


@pytest.fixture(scope="module")
def address(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    folder = tmp_path_factory.mktemp("service")
    settings = ServeSettings(bundles=folder, store=f"sqlite:///{folder}/serve.db", trace="pai")
    with closing(open_service(settings)) as service, serving(create_app(service)) as found:
        yield found


def test_a_cluster_of_the_wrong_shape_is_refused_before_it_is_sent() -> None:
    with Client("http://127.0.0.1:9") as client:  # no service runs there
        with pytest.raises(BadRequest, match=r"policy"):
            client.placements(cluster(policy="lifo"))
        with pytest.raises(BadRequest, match=r"explain"):
            client.explain_pending(cluster(), job_ids=["a2"] * (MAX_EXPLAINED + 1))


@pytest.mark.parametrize("command", [["place"], ["explain-pending"], ["explain-pending", "--job", "a2"]])
def test_a_command_decides_as_a_service(address: str, tmp_path: Path, command: list[str]) -> None:
    file = tmp_path / "cluster.json"
    file.write_text(json.dumps(cluster()), encoding="utf-8")

    done = CliRunner().invoke(app, [*command, str(file)])
    with Client(address) as client:
        if command == ["place"]:
            said = [row.reason.text for row in client.placements(cluster()).placements]
        else:
            said = [row.text for row in client.explain_pending(cluster(), job_ids=command[2:] or None).pending]

    assert done.exit_code == 0, done.output
    assert [row["text"] for row in json.loads(done.stdout)] == said


def test_more_jobs_than_a_call_takes_are_sent_in_parts(address: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("modelserve.client.asynchronous.MAX_RUNNING", 3)
    asked = {"task_type": "ctr", "request": {"cpu_cores": 6.0}, "age_s": 60.0}

    with Client(address) as client:
        found = client.reservations([{"job_id": f"j{i}", **asked} for i in range(5)])

    assert [row.job_id for row in found] == [f"j{i}" for i in range(5)]
    assert len({row.answer_id for row in found}) == 2
