"""Results from nothing: fetch, ingest and study from a mirror on this machine, and the commands that the page names."""

import hashlib
import importlib.util
import json
import re
import tarfile
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
from pipelines.lake.lake import Lake
from pipelines.simulation.energy.grid_files import zones_of
from pipelines.studies import STUDIES
from pipelines.studies.energy import by_frequency, gavel_throughputs
from pipelines.studies.fragmentation.published import POLICIES
from tests.pipelines.studies.fragmentation.tiny import results, tiny_openb

DOCS = Path(__file__).resolve().parents[3] / "docs"
PAGE = (DOCS / "results.md").read_text(encoding="utf-8")


class Quiet(SimpleHTTPRequestHandler):
    def log_message(self, *args: object) -> None:
        pass


def manifest_of(folder: Path) -> str:
    files = "".join(
        f'[[files]]\nname = "{name}"\nurl = "https://example.org/{name}"\n'
        f'sha256 = "{hashlib.sha256((folder / name).read_bytes()).hexdigest()}"\n'
        f"size_bytes = {(folder / name).stat().st_size}\n"
        for name in sorted(str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file())
    )
    about = "".join(f'{name} = "made up"\n' for name in ("title", "publisher", "licence", "citation", "next"))
    return f'name = "made-up"\n{about}homepage = "https://example.org/"\n{files}'


def fetched(published: Path, raw: Path, monkeypatch: pytest.MonkeyPatch, name: str = "") -> set[str]:
    """Fetch a folder's files from a mirror on this machine, all or those of a published name; return their states."""
    monkeypatch.setenv("NO_PROXY", "*")
    manifest = None if name else raw.with_suffix(".toml")
    if manifest is not None:
        raw.parent.mkdir(exist_ok=True)
        manifest.write_text(manifest_of(published))
    with ThreadingHTTPServer(("127.0.0.1", 0), partial(Quiet, directory=str(published))) as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        files = fetch(name, raw, manifest=manifest, base_url=f"http://127.0.0.1:{server.server_port}")
        server.shutdown()
        thread.join()
    return {file.state for file in files}


def test_a_study_runs_on_what_a_mirror_serves(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    site = tiny_openb(tmp_path / "site", "default")
    results(site / "expected_results", dict.fromkeys(POLICIES, (80.0, 81.0)))
    states = fetched(site, tmp_path / "raw" / "openb", monkeypatch)

    ingest("openb", tmp_path / "raw" / "openb", tmp_path / "lake")
    study = ["study", "fragmentation", "--workload", "default", "--seeds", "2", "--processes", "1", "--format", "json"]
    result = CliRunner().invoke(
        app, [*study, "--lake", str(tmp_path / "lake")], env={"TAUT_TRACES": str(tmp_path / "raw")}
    )

    assert states == {"fetched"}
    assert result.exit_code == 0, result.output
    rows: list[dict[str, Any]] = json.loads(result.stdout)
    assert {row["policy"] for row in rows if row.get("policy")} >= {"fgd", "dot_product"}
    assert [row["published_pct"] for row in rows if row.get("policy") == "fgd" and row["table"] == "unallocated"] == [
        19.5
    ]


@pytest.mark.parametrize(
    ("arguments", "command"),
    [
        *(([name], f"`taut fetch {entry.trace} && taut ingest {entry.trace} --from data/raw/{entry.trace}`")
          for name, entry in STUDIES.items() if name not in ("carbon", "cost")),
        (["reclaim", "--trace", "pai-synth"], "`taut synth pai && taut ingest pai --from data/raw/pai-synth"),
        (["shrinking", "--trace", "philly-rebuilt"], "philly-rebuilt is not a published trace"),
    ],
)  # fmt: skip
def test_a_study_without_its_data_names_the_command_that_gets_it(
    arguments: list[str], command: str, tmp_path: Path
) -> None:
    result = CliRunner().invoke(app, ["study", *arguments, "--lake", str(tmp_path / "lake")], env={"TAUT_TRACE": ""})

    assert result.exit_code == 1
    assert command in " ".join(result.stderr.split())


def test_above_each_table_of_the_page_are_the_commands_that_get_its_data() -> None:
    sections = {part.partition("\n")[0]: part for part in PAGE.split("\n## ") if "\n| command |" in part}

    assert len(sections) == 5
    for part in sections.values():
        first, *others = re.findall(r"^    (.+)$", part, re.MULTILINE)
        verb, name = first.split()[1:3]
        if verb == "fetch":
            assert name in published_names()
            used = publication(name).next.format(to=f"data/raw/{name}")
            assert " && ".join(others) == used or (name == "helios" and others[-1].startswith("taut ingest helios"))
        else:
            assert (verb, others) == ("synth", ["taut ingest pai --from data/raw/pai-synth --as pai-synth"])
    assert set(re.findall(r"taut study ([\w-]+)", PAGE)) <= set(STUDIES)
    assert set(re.findall(r"--trace ([\w-]+)", PAGE)) == {"pai", "helios", "pai-synth"}


def test_the_energy_studies_find_their_tables_where_a_mirror_puts_them(
    traces: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = traces.parent / "energy"
    if not real.is_dir():
        pytest.skip("no measured tables here")
    states = fetched(real, tmp_path / "raw", monkeypatch, name="energy")

    assert states == {"fetched"}
    assert len(by_frequency(tmp_path / "raw").names) == 33
    assert len(gavel_throughputs(tmp_path / "raw"))
    assert len(zones_of(tmp_path / "raw" / "grid")) == 8


def loaded(name: str) -> ModuleType:
    spec = importlib.util.spec_from_file_location(name, DOCS / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    script = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(script)
    return script


def test_the_pai_sample_is_cut_out_of_the_joined_rows_that_a_mirror_serves(
    traces: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    script, real, raw = loaded("pai_sample"), traces / "pai", tmp_path / "raw"
    as_text = {"infer_schema": False, "has_header": False}
    tables = {
        name: pl.read_csv(real / f"pai_{name}_table.csv", new_columns=columns, **as_text).fill_null("")
        for name, columns in script.COLUMNS.items()
    }
    task, worker = ["job_name", "task_name"], ["job_name", "task_name", "worker_name", "inst_id", "machine"]
    rows = (
        tables["sensor"]
        .join(tables["instance"], on=worker, maintain_order="left")
        .join(tables["task"].drop("status", "start_time", "end_time"), on=task, maintain_order="left")
        .join(tables["group_tag"].drop("gpu_type_spec"), on="inst_id", maintain_order="left")
        .with_columns(index=pl.lit("36371317"), cap_gpu_machine_spec=pl.lit("2.0"))
    )
    others = rows.with_columns(cpu_usage=pl.col("cpu_usage") + "1", group=pl.lit("not of the sample")).head(142)
    (tmp_path / "site").mkdir()
    pl.concat([others, rows]).write_csv(tmp_path / "site" / "1_000_sampled_test_data.csv")
    with tarfile.open(tmp_path / "site" / "pai_machine_spec.tar.gz", "w:gz") as archive:
        archive.add(real / "pai_machine_spec.csv", "pai_machine_spec.csv")

    assert fetched(tmp_path / "site", raw, monkeypatch) == {"fetched"}
    script.main(raw)
    ingest("pai", raw / "pai", tmp_path / "lake")
    ingest("pai", real, tmp_path / "expected")

    assert capsys.readouterr().out == "824 tasks, byte for byte the sample of the results\n"
    for table in ("jobs", "usage", "machines"):
        made, expected = (Lake(tmp_path / lake).table(table, "pai").collect() for lake in ("lake", "expected"))
        assert made.equals(expected)
    with (raw / "1_000_sampled_test_data.csv").open("a") as file:
        file.write(rows.head(1).with_columns(plan_cpu=pl.lit("1.0")).write_csv(include_header=False))
    script.main(raw)
    assert capsys.readouterr().out == "825 tasks, not the sample of the results\n"


@pytest.fixture(scope="module")
def script() -> ModuleType:
    return loaded("venus_sample")


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
