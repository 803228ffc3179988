"""Results from nothing: fetch, ingest and study from a mirror on this machine, and the commands that the page names."""

import hashlib
import importlib.util
import json
import re
import threading
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from types import ModuleType
from typing import Any

import polars as pl
import pytest
from typer.testing import CliRunner

from pipelines.cli import app
from pipelines.fetch.fetch import fetch
from pipelines.fetch.publication import publication, published_names
from pipelines.lake.ingest import ingest
from pipelines.studies.registry import STUDIES
from tests.pipelines.studies.fragmentation.tiny import tiny_openb

DOCS = Path(__file__).resolve().parents[3] / "docs"
PAGE = (DOCS / "results.md").read_text(encoding="utf-8")


class Quiet(SimpleHTTPRequestHandler):
    def log_message(self, *args: object) -> None:
        pass


def manifest_of(folder: Path) -> str:
    files = "".join(
        f'[[files]]\nname = "{path.name}"\nurl = "https://example.org/{path.name}"\n'
        f'sha256 = "{hashlib.sha256(path.read_bytes()).hexdigest()}"\nsize_bytes = {path.stat().st_size}\n'
        for path in sorted(folder.iterdir())
    )
    about = "".join(f'{name} = "made up"\n' for name in ("title", "publisher", "licence", "citation"))
    return f'name = "openb"\n{about}homepage = "https://example.org/"\n{files}'


def test_a_study_runs_on_what_a_mirror_serves(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NO_PROXY", "*")
    published = tiny_openb(tmp_path / "site", "default")
    (tmp_path / "openb.toml").write_text(manifest_of(published))
    with ThreadingHTTPServer(("127.0.0.1", 0), partial(Quiet, directory=str(published))) as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        url = f"http://127.0.0.1:{server.server_port}"
        files = fetch("openb", tmp_path / "raw", manifest=tmp_path / "openb.toml", base_url=url)
        server.shutdown()
        thread.join()

    ingest("openb", tmp_path / "raw", tmp_path / "lake")
    study = ["study", "fragmentation", "--workload", "default", "--seeds", "2", "--processes", "1", "--format", "json"]
    result = CliRunner().invoke(app, [*study, "--lake", str(tmp_path / "lake")], env={"TAUT_TRACES": str(tmp_path)})

    assert {file.state for file in files} == {"fetched"}
    assert result.exit_code == 0, result.output
    rows: list[dict[str, Any]] = json.loads(result.stdout)
    assert {row["policy"] for row in rows if row.get("policy")} >= {"fgd", "dot_product"}


@pytest.mark.parametrize(
    ("arguments", "command"),
    [
        *(([name], f"`taut fetch {entry.trace} && taut ingest {entry.trace} --from data/raw/{entry.trace}`")
          for name, entry in STUDIES.items() if name not in ("carbon", "cost")),
        (["reclaim", "--trace", "pai-synth"], "`taut synth pai && taut ingest pai --from data/raw/pai-synth"),
        (["replay", "--trace", "philly-rebuilt"], "philly-rebuilt is not a published trace"),
    ],
)  # fmt: skip
def test_a_study_without_its_data_names_the_command_that_gets_it(
    arguments: list[str], command: str, tmp_path: Path
) -> None:
    result = CliRunner().invoke(app, ["study", *arguments, "--lake", str(tmp_path / "lake")], env={"TAUT_TRACE": ""})

    assert result.exit_code == 1
    assert command in " ".join(result.stderr.split())


def test_what_the_page_fetches_is_published_and_its_studies_exist() -> None:
    top = PAGE.partition("## Not reproducible")[0]
    fetched = set(re.findall(r"`taut fetch ([\w-]+)`", PAGE))

    assert fetched <= set(published_names())
    assert {publication(name).licence for name in fetched}
    assert set(re.findall(r"taut study ([\w-]+)", PAGE)) <= set(STUDIES)
    for row in (line for line in top.splitlines() if re.match(r"\| `taut (fetch|synth)", line)):
        trace = re.findall(r"taut (?:fetch|synth) (\w+)", row)[0]
        assert f"taut ingest {trace} --from data/raw/" in row
        assert "taut study" in row or "taut evaluate" in row


@pytest.fixture(scope="module")
def script() -> ModuleType:
    spec = importlib.util.spec_from_file_location("venus_sample", DOCS / "venus_sample.py")
    assert spec is not None
    assert spec.loader is not None
    script = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(script)
    return script


def test_the_venus_sample_hides_what_the_results_did_not_know(
    script: ModuleType, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    head = "job_id,user,vc,gpu_num,cpu_num,node_num,state,submit_time,start_time,end_time,duration,queue"
    jobs = [
        "9,u,v,8,64,1,COMPLETED,2020-08-31 23:00:00,2020-09-01 01:00:00,2020-09-08 01:00:00,604800.0,7200",
        "7,u,v,1,4,1,FAILED,2020-04-01 00:00:00,2020-04-01 00:00:10,2020-04-01 00:01:10,60,10",
        "8,u,v,0,4,1,COMPLETED,2020-04-02 00:00:00,2020-04-02 00:00:00,2020-04-02 00:01:00,60,0",
        "10,u,v,1,4,1,COMPLETED,2020-09-01 00:00:00,2020-09-01 00:00:00,2020-09-01 00:01:00,60,0",
    ]
    (tmp_path / "cluster_log.csv").write_text("\n".join([head, *jobs]) + "\n")
    (tmp_path / "cluster_gpu_number.csv").write_text("date,total\n")
    script.main(tmp_path, tmp_path / "made")

    lines = (tmp_path / "made" / "cluster_log.csv").read_text().splitlines()
    assert lines == [
        head,
        "7,,,1,,,,2020-04-01 00:00:00,2020-04-01 00:00:00,2020-04-01 00:01:00,60,0",
        "9,,,8,,,,2020-08-31 23:00:00,2020-08-31 23:00:00,2020-09-02 23:00:00,172800,0",
    ]
    assert capsys.readouterr().out == "2 jobs, not the sample of the results\n"


def test_the_venus_sample_of_a_sample_is_itself(script: ModuleType, traces: Path, tmp_path: Path) -> None:
    published = traces / "helios" / "Venus" / "cluster_log.csv"
    script.sample(pl.read_csv(published, infer_schema=False)).write_csv(tmp_path / "again.csv")

    assert hashlib.sha256((tmp_path / "again.csv").read_bytes()).hexdigest() == script.SHA256
