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
from pipelines.simulation.sites.weeks import Place, places_of
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
        where = ["--lake", str(world / "lake"), "--format", "json"]
        if "--sites" not in arguments:
            where += ["--zone", "east", "--zone", "west"]
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
        (["train", "--out", "lake/manifests/toy.json/p.json"], "name a file in a folder"),
        (["simulate", "--cluster", "pluto"], "no cluster 'pluto' in toy; it has c"),
        (["evaluate", "--policy", "none.json"], "write one with `taut sites train`"),
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


SITES = '[[sites]]\nzone = "east"\ngpus = 64\n[[sites]]\nzone = "west"\ngpus = 8\npue = 1.5\ngpu_type = "T4"\n'


def test_own_sites_have_their_own_sizes(world: Path) -> None:
    (world / "sites.toml").write_text(SITES)

    east, west = places_of(world / "grid", sites=world / "sites.toml", year=2023)

    assert (east.gpus, east.power.gpu_full_w, east.grid.pue) == (64, 400.0, 1.2)
    assert (west.gpus, west.power.gpu_full_w, west.grid.pue) == (8, 70.0, 1.5)
    assert east.idle_kw == pytest.approx(8 * usual(world).idle_kw * 8 / 48)


def usual(world: Path) -> Place:
    return places_of(world / "grid", ("east", "west"))[0]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "expected 2 to 8 [[sites]]"),
        ("sites = 3", "expected a list"),
        ("[[sites]", "expected [[sites]] with zone, gpus, pue and gpu_type"),
        (SITES.replace("gpus = 8", "gpus = 0"), "sites: 1.gpus"),
        (SITES.replace("pue = 1.5", "pue = 0.5"), "sites: 1.pue"),
        (SITES.replace("west", "east"), "found 2 sites in 1 zones"),
        (SITES.replace("west", "../west"), "--zone ../west: found the zones east, west"),
        (SITES.replace("T4", "H999"), "no power of gpu_type 'H999', expected one of"),
        (SITES + "surplus = 1\n", "sites: 1.surplus"),
    ],
)
def test_a_file_of_sites_at_fault_is_named(taut: Taut, tmp_path: Path, text: str, message: str) -> None:
    (tmp_path / "own.toml").write_text(text)

    found = taut("simulate", "--sites", str(tmp_path / "own.toml"))

    assert found.exit_code == 2
    assert message in found.stderr
    assert found.stderr.count("\n") == 1


def test_a_year_without_series_is_refused(taut: Taut) -> None:
    found = taut("simulate", "--year", "2024")
    assert found.exit_code == 2
    assert "--zone east: found carbon from 2023-01-01 to 2024-01-01, expected all of 2024" in found.stderr


@pytest.mark.slow
def test_a_trained_policy_is_judged_and_serves(taut: Taut, tmp_path: Path) -> None:
    path = tmp_path / "policy.json"
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
