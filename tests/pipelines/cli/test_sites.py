"""`taut sites`: what it refuses before it works, and a policy from training to the service."""

import json
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pytest
from click.testing import Result
from starlette.testclient import TestClient
from typer.testing import CliRunner

from modelserve.api.app import create_app
from modelserve.service import open_service
from modelserve.settings import ServeSettings
from pipelines.cli import app
from tests.modelserve.api.test_answers import ROUTES
from tests.pipelines.simulation.sites.recorded_sites import grids_on_disk, jobs_on_disk

Taut = Callable[..., Result]


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("sites")
    jobs_on_disk(folder / "lake")
    grids_on_disk(folder / "grid")
    grids_on_disk(folder / "half", hours=4000)
    return folder


@pytest.fixture
def taut(world: Path) -> Taut:
    def run(command: str, *arguments: str) -> Result:
        where = ["--lake", str(world / "lake"), "--zone", "east", "--zone", "west", "--format", "json"]
        if "--grid" not in arguments:
            where += ["--grid", str(world / "grid")]
        return CliRunner().invoke(app, ["sites", command, *where, *arguments])

    return run


def test_a_grid_of_half_a_year_is_refused(taut: Taut, world: Path) -> None:
    found = taut("simulate", "--grid", str(world / "half"))
    assert found.exit_code == 2
    assert "found hours from 2023-01-01 to 2023-06-16, expected all of 2023" in found.stderr


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["train", "--out", "."], "found a folder"),
        (["train", "--out", "lake/manifests/toy.json/p.npz"], "name a file in a folder"),
        (["simulate", "--cluster", "pluto"], "no cluster 'pluto' in toy; it has c"),
        (["evaluate", "--policy", "none.npz"], "write one with `taut sites train`"),
        (["evaluate", "--policy", "."], "write one with `taut sites train`"),
    ],
)
def test_a_wrong_path_or_name_is_refused_with_a_cure(
    taut: Taut, world: Path, monkeypatch: pytest.MonkeyPatch, arguments: list[str], message: str
) -> None:
    monkeypatch.chdir(world)
    found = taut(*arguments)
    assert found.exit_code in (1, 2)
    assert message in found.stderr.splitlines()[-1]


@pytest.mark.slow
def test_a_trained_policy_is_judged_and_serves(taut: Taut, tmp_path: Path) -> None:
    path = tmp_path / "policy.npz"
    trained = taut("train", "--load", "0.1", "--out", str(path))
    assert trained.exit_code == 0, trained.stderr
    best = max(json.loads(trained.stdout), key=lambda row: row["usd_per_week"])["policy"]
    judged = taut("evaluate", "--load", "0.1", "--policy", str(path))
    assert best in {row["policy"] for row in json.loads(judged.stdout)}
    settings = ServeSettings(bundles=tmp_path, store=f"sqlite:///{tmp_path}/serve.db", trace="toy", sites_policy=path)
    with closing(open_service(settings)) as service, TestClient(create_app(service)) as client:
        answer = client.post("/v1/route", json=ROUTES).json()
    assert answer["policy"] == best
    assert answer["routes"][0]["site"] == "b"
