"""Whole commands, run from a folder full of hostile files: neither they nor any process below them execute one."""

import json
import os
import shutil
import sqlite3
import subprocess
import sys
import urllib.request
from collections.abc import Callable
from contextlib import closing
from importlib.metadata import packages_distributions
from pathlib import Path

import pytest

from tests.modelserve.mirrored import Folder
from tests.modelserve.server.running import Running, alive, check_serving, stop, until
from tests.modelserve.server.running import start as start_running

pytestmark = pytest.mark.slow

MODULES = sorted({*sys.stdlib_module_names, *packages_distributions(), "usercustomize", "site"})
"""Names of all modules that Python could find in the current folder instead of its own or an installed one."""
OTHERS = {
    ".duckdbrc": ".shell touch EXECUTED",
    ".env": "TAUT_SERVE_MODE=enforce\nTAUT_SERVE_HOST=0.0.0.0\nPYTHONPATH=.\n",
    "pyproject.toml": "[tool.taut]\n[tool.mypy]\nplugins = 'html'\n",
    "conftest.py": "",
    "dask.yaml": "distributed:\n  worker:\n    preload: [html]\n  nanny:\n    preload: [html]\n",
    "MLproject": "entry_points:\n  main:\n    command: touch EXECUTED\n",
    "json.duckdb_extension": "no extension",
}
HEADER = "job_id,user,vc,gpu_num,cpu_num,node_num,state,submit_time,start_time,end_time,duration,queue"
ROW = "{},u,v,1,,1,FAILED,2020-04-01 08:00:00,2020-04-01 08:00:01,2020-04-01 08:00:31,30,1"
TAUT = "taut"


@pytest.fixture
def executed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[], list[str]]:
    """Go to a hostile folder; return a function that lists what of it was executed."""
    hostile, told = tmp_path / "hostile", tmp_path / "EXECUTED"
    hostile.mkdir()
    for name in MODULES:
        (hostile / f"{name}.py").write_text(f"open({str(told)!r}, 'a').write({name + chr(10)!r})\n")
    for name, text in OTHERS.items():
        (hostile / name).write_text(text.replace("EXECUTED", str(told)))
    before = sorted(hostile.rglob("*"))
    monkeypatch.chdir(hostile)
    monkeypatch.setenv("PATH", f"{Path(sys.executable).parent}:{os.environ['PATH']}")
    for name in (
        "PYTHONPATH",
        "PYTHONSAFEPATH",
    ):  # the first may name this folder; importing the commands sets the second
        monkeypatch.delenv(name, raising=False)

    def found() -> list[str]:
        left = [str(path) for path in sorted(hostile.rglob("*")) if path not in before]
        return [*(told.read_text().split() if told.exists() else ()), *left]

    return found


def run(*arguments: object) -> str:
    done = subprocess.run([TAUT, *map(str, arguments)], capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_the_folder_is_hostile(executed: Callable[[], list[str]]) -> None:
    subprocess.run([sys.executable, "-c", "import html"], check=False, capture_output=True)

    assert "html" in executed()


@pytest.mark.parametrize("engine", ["processes", "dask"])
def test_commands_and_their_processes(engine: str, tmp_path: Path, executed: Callable[[], list[str]]) -> None:
    for cluster in ("Venus", "Earth"):
        (tmp_path / "from" / cluster).mkdir(parents=True)
        (tmp_path / "from" / cluster / "cluster_log.csv").write_text(f"{HEADER}\n{ROW.format(1)}\n{ROW.format(2)}\n")

    run("ingest", "helios", "--from", tmp_path / "from", "--lake", tmp_path / "lake", "--engine", engine)

    assert json.loads(
        run("sql", "--lake", tmp_path / "lake", "--format", "json", "SELECT count(*) AS n FROM jobs")
    ) == [{"n": 4}]
    assert executed() == []


def test_the_service_with_workers_and_sync(folder: Folder, tmp_path: Path, executed: Callable[[], list[str]]) -> None:
    registry = tmp_path / "mlflow.db"
    registry.touch()
    bundles = shutil.copytree(folder.path, tmp_path / "served")
    settings = {
        "PORT": "0",
        "WORKERS": "2",
        "BUNDLES": str(bundles),
        "STORE": f"sqlite:///{tmp_path}/serve.db",
        "TRACKING_URI": f"sqlite:///{registry}",
    }
    one = start_running([TAUT, "serve"], {f"TAUT_SERVE_{name}": value for name, value in settings.items()})
    try:
        check_serving(one)
        until(lambda: len(below(one)) >= 3, what="two workers and the sync process")
        job = {"job_id": "a", "task_type": "ctr", "cluster": "pai", "request": {"gpus": 0.5}}
        body = json.dumps({"trace": "pai", "jobs": [job]}).encode()
        call = urllib.request.Request(f"{one.url}/v1/predictions", body, {"content-type": "application/json"})
        with urllib.request.urlopen(call, timeout=30) as answer:
            assert answer.status == 200
        until(lambda: "alembic_version" in tables(registry), what="MLflow opened the registry")
    finally:
        stop(one)

    assert executed() == []


def below(one: Running) -> list[int]:
    """Return the processes below a server that still run."""
    found, todo = [], [one.process.pid]
    while todo:
        pid = todo.pop()
        for file in Path(f"/proc/{pid}/task").glob("*/children"):
            todo += (children := [int(each) for each in file.read_text().split()])
            found += children
    return [pid for pid in found if alive(pid)]


def tables(database: Path) -> set[str]:
    with closing(sqlite3.connect(database)) as connection:
        return {name for (name,) in connection.execute("SELECT name FROM sqlite_master")}
