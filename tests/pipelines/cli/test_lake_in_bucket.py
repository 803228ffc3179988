"""Every command with `--lake` on a lake in a bucket, with the registry in PostgreSQL and its artifacts in the bucket.

TAUT_ALL_COMMANDS=1 adds commands that take long and open the lake as another one does: they share `options.opened`.
"""

import json
import os
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import fsspec
import httpx2
import pytest
from typer.testing import CliRunner, Result

from modelserve.api.app import create_app
from modelserve.service import open_service
from pipelines.cli import app
from pipelines.cli.serving import serve_settings
from pipelines.lake.lake import Lake
from tests.modelserve.running import serving
from tests.modelserve.store.test_store_postgresql import Server
from tests.modelserve.store.test_store_postgresql import server as server  # the fixture: a PostgreSQL of our own
from tests.object_store import BUCKET, KEY, SECRET, running_store
from tests.own_cluster_examples import steps
from tests.pipelines.cli.test_slurm import GOLDEN
from tests.pipelines.connect.prometheus import fake
from tests.pipelines.connect.prometheus.live import lake_of
from tests.pipelines.connect.prometheus.test_measuring import HOUR_S, busy_hours
from tests.pipelines.connect.prometheus.truth import T0, Job
from tests.pipelines.simulation.sites.recorded_sites import grids_on_disk, jobs_on_disk

pytestmark = pytest.mark.slow
PAGE = Path(__file__).resolve().parents[3] / "docs" / "lake.md"
LAKE, ARTIFACTS = f"s3://{BUCKET}/lake", f"s3://{BUCKET}/models"


@pytest.fixture(scope="module")
def place(server: Server, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """Yield the folder of a user whose lake, registry and artifacts are elsewhere; a small trace is ingested."""
    folder = tmp_path_factory.mktemp("user")
    (folder / "plan.json").write_text(json.dumps({"job_id": "p1", "request": {"gpus": 2}, "run_s": 7200}))
    with running_store() as store, pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        settings = {
            **store.environment(),
            "XDG_CACHE_HOME": str(folder / "cache"),
            "TAUT_LAKE": LAKE,
            "TAUT_TRACE": "pai-synth",
            "TAUT_THREADS": "1",
            "MLFLOW_TRACKING_URI": server.make_database("registry"),
            "MLFLOW_DEFAULT_ARTIFACT_ROOT": ARTIFACTS,
        }
        for name, value in settings.items():
            patch.setenv(name, value)
        patch.delenv("TAUT_BUNDLES", raising=False)
        taut("synth", "pai", "--to", "raw", "--tasks", "1500", "--tagged-share", "0.9", lake=None)
        taut("ingest", "pai", "--from", "raw", "--as", "pai-synth")
        yield folder


def taut(*words: str, lake: str | None = LAKE) -> Result:
    result = CliRunner().invoke(app, [*words, *(() if lake is None else ("--lake", lake))])
    assert result.exit_code == 0, result.output
    assert SECRET not in result.output
    assert KEY not in result.output
    return result


def uploaded(lake: Path, name: str) -> str:
    """Copy a lake from a folder to the bucket; return its address."""
    files = fsspec.filesystem("s3", skip_instance_cache=True)
    address = f"s3://{BUCKET}/{name}"
    for path in lake.rglob("*"):
        if path.suffix in (".json", ".parquet"):
            files.put_file(str(path), f"{address}/{path.relative_to(lake).as_posix()}")
    return address


@pytest.mark.parametrize(
    ("words", "found"),
    [
        (("ingest", "pai", "--from", "raw", "--as", "pai-synth"), "unchanged: trace pai-synth in s3://fleet/lake"),
        (("ingest", "pai", "--from", "raw", "--as", "pai-synth", "--check"), "nothing was written"),
        (("ingest", "pai", "--from", "raw", "--as", "by-dask", "--engine", "dask"), "by-dask"),
        (("sql", "SELECT count(*) AS n FROM jobs WHERE trace = 'pai-synth'", "--format", "csv"), "1500"),
        (("stats", "sizes", "--format", "json"), "["),
        (("rightsize", "--format", "csv"), "ctr"),
        (("evaluate", "--type", "nlp", "--format", "csv"), "nlp"),
        (("plan", "speeds", "--jobs", "plan.json"), '"job_id":"p1"'),
        (
            ("slurm", "history", "--from", str(GOLDEN), "--cluster", "taut"),
            "ingested as trace slurm in s3://fleet/lake",
        ),
    ],
    ids=lambda each: each[0] if isinstance(each, tuple) else "",
)
def test_a_command_reads_and_writes_the_lake_in_the_bucket(place: Path, words: tuple[str, ...], found: str) -> None:
    assert found in taut(*words).output


def test_models_go_from_the_bucket_through_the_registry_into_the_service_and_are_retrained(place: Path) -> None:
    of = ("--type", "nlp")
    taut("train", *of, "--engine", "dask")
    taut("promote", "--force")
    listed = json.loads(taut("models", "--format", "json").stdout)
    assert {row["name"] for row in listed} == {"runtime.pai-synth.nlp", "usage.pai-synth.nlp"}
    files = fsspec.filesystem("s3", use_listings_cache=False, skip_instance_cache=True)
    assert any(name.endswith("card.json") for name in files.find(ARTIFACTS))
    assert not (place / "mlruns").exists()

    request = {"cpu_cores": 6, "mem_gib": 29.3, "gpus": 0.5}
    job = {"job_id": "a1", "task_type": "nlp", "user": "u", "gpu_type": "T4", "instances": 4, "request": request}
    (place / "nlp.json").write_text(json.dumps(job))
    predicted = json.loads(taut("predict", "nlp.json", "--format", "json").stdout)
    taut("recommend", "nlp.json", "--offline", "--format", "json")
    simulated = taut("simulate", "--offline", "--hours", "2", "--format", "csv")
    assert "shrunk" in simulated.output

    settings = serve_settings(None, {})
    assert settings.store == f"sqlite:///{place}/data/serve.db"
    with closing(open_service(settings)) as service, serving(create_app(service)) as address:
        answer = httpx2.post(f"{address}/v1/predictions", json={"jobs": [job]}).raise_for_status().json()
    [served] = answer["predictions"]
    assert served["basis"] == "model"
    assert served["models"]["run_time"] == "runtime.pai-synth.nlp@1"
    assert predicted[0]["run_time_p50_s"] > 0

    taut("tune", *of, "--out", "recipe.json", "--trials", "2")
    retrained = taut("retrain", *of)
    assert json.loads(retrained.stdout.splitlines()[-1])["outcome"] == "promoted"
    spoken = b"".join(path.read_bytes() for path in (place / "data").rglob("*") if path.is_file())
    stored = b"".join(files.cat(files.find(f"s3://{BUCKET}")).values())
    assert not any(word.encode() in spoken + stored for word in (KEY, SECRET))


def test_use_read_from_prometheus_is_added_to_the_bucket_and_reported(
    place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    job = Job(job_id="7", start_s=T0, end_s=T0 + 3 * HOUR_S - 1, gpus=(("n1", 0),))
    address = uploaded(lake_of(place / "measured", [job]).path, "measured")
    made, _ = fake.server(busy_hours())
    with monkeypatch.context() as patch:
        patch.setattr(httpx2, "Client", lambda **_: made.client)
        named = ("--url", "http://prom:9090", "--dialect", "dcgm-job", "--trace", "live")
        taut("usage", "prometheus", *named, lake=address)
    with Lake(address) as lake:
        assert lake.table("usage").collect()["used_gpus"].to_list() == [0.5]
    taut("report", "--out", "report.html", "--no-models", lake=address)
    assert "live" in (place / "report.html").read_text()


LONG = (
    ("sites", "train", "--out", "policy.json"),
    ("sites", "evaluate", "--policy", "policy.json"),
)
SITES = ("--load", "0.1", "--zone", "east", "--zone", "west", "--grid", "grid")


@pytest.mark.parametrize("command", [*(LONG if os.environ.get("TAUT_ALL_COMMANDS") else ()), ("sites", "simulate")])
def test_sites_and_studies_read_jobs_in_the_bucket(place: Path, command: tuple[str, ...]) -> None:
    if not (place / "grid").exists():
        jobs_on_disk(place / "jobs")
        grids_on_disk(place / "grid")
        uploaded(place / "jobs", "sites")
    done = taut(*command, *(SITES if command[0] == "sites" else ()), "--trace", "toy", lake=f"s3://{BUCKET}/sites")
    assert done.stdout.strip() or (place / "policy.json").is_file()


def test_a_study_on_dask_reads_jobs_in_the_bucket(place: Path) -> None:
    options = ("--arm", "reclaim", "--variation", "default", "--no-models", "--format", "json", "--processes", "2")
    found = taut("study", "reclaim", "--seeds", "2", "--rate", "20", *options, "--engine", "dask").stdout
    assert {row["trace"] for row in json.loads(found)} == {"pai-synth"}


def test_the_page_works_as_shown(place: Path, tmp_path: Path) -> None:
    """Carry out the blocks of docs/lake.md with the addresses and keys of this server."""
    ours = {
        "http://127.0.0.1:8333": os.environ["AWS_ENDPOINT_URL"],
        "=KEY": f"={KEY}",
        "=SECRET": f"={SECRET}",
        "s3://fleet/lake": f"s3://{BUCKET}/page",
        "postgresql+psycopg://taut@127.0.0.1:5432/registry": os.environ["MLFLOW_TRACKING_URI"],
    }
    text = PAGE.read_text(encoding="utf-8")
    for shown, real in ours.items():
        assert shown in text
        text = text.replace(shown, real)
    first, second = steps(text)
    assert first.said_in(tmp_path).endswith(first.answer)
    second.said_in(tmp_path)  # the registry answers; it has models if the test above ran before
