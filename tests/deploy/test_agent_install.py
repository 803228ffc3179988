"""What runs beside a cluster needs the base dependencies only: every other library is hidden, and the commands run."""

import json
import subprocess
import sys
import tomllib
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
SACCT = ROOT / "tests" / "pipelines" / "connect" / "slurm" / "sacct.txt"
ASIDE = (
    "duckdb", "dataframely", "fastapi", "mlflow", "numba", "polars", "pyarrow", "scipy", "sklearn", "sqlalchemy",
    "uvloop", "xgboost",
)  # fmt: skip
SERVER = ("starlette", "uvicorn", "prometheus_client", "httptools")
"""Libraries of `taut[agent]`; the base without them is enough for Slurm."""
HIDE = """
import sys
class Hidden:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in {hidden!r}:
            raise ModuleNotFoundError("hidden", name=name)
sys.meta_path.insert(0, Hidden())
"""
RUN = """
import json
from typer.testing import CliRunner
from pipelines.cli import app
print(json.dumps({name: CliRunner().invoke(app, words).output for name, words in COMMANDS.items()}))
"""
COMMANDS = {
    "agent": ("slurm", "agent", "--config", "slurm.toml", "--socket", "x" * 200),
    "feedback": ("slurm", "feedback", "--url", "http://127.0.0.1:9", "--state", "state", "--once"),
    "history": ("slurm", "history", "--only", "read", "--records", "records", "--from", str(SACCT)),
    "job": ("job", "1"),
    "reclaim": ("reclaim", "slurm", "--url", "http://127.0.0.1:9", "--lake", "lake", "--once"),
    "kube feedback": ("kube", "feedback", "--config", "kubernetes.toml", "--url", "http://127.0.0.1:9", "--once"),
    "kube reclaim": ("kube", "reclaim", "--config", "kubernetes.toml", "--url", "http://127.0.0.1:9", "--rounds", "1"),
    "kube manifests": (
        "kube", "manifests", "--out", "out", "--url", "http://taut", "--trace", "t", "--cluster", "c",
    ),
}  # fmt: skip
SAID = {
    "agent": "longer than a Unix socket's name",
    "feedback": "is not installed here",
    "history": "kept in records",
    "job": "is not installed here",
    "reclaim": "is not installed here",
    "kube feedback": "--api-server",
    "kube reclaim": "--api-server",
    "kube manifests": "webhook.yaml",
}
"""What each command says at the first thing that this test does not give it, or at its end."""


def ran_without(hidden: tuple[str, ...], code: str, folder: Path) -> str:
    """Run code in a process that cannot import some libraries; return what it wrote."""
    words = [sys.executable, "-c", HIDE.format(hidden=hidden) + code]
    environment = {"PATH": str(folder), "PYTHONPATH": str(ROOT), "HOME": str(folder)}
    return subprocess.run(
        words, cwd=folder, capture_output=True, text=True, timeout=60, env=environment, check=True
    ).stdout


def test_the_commands_beside_a_cluster_need_the_base_only(tmp_path: Path) -> None:
    (tmp_path / "slurm.toml").write_text('cluster = "c"\n')
    (tmp_path / "kubernetes.toml").write_text('trace = "t"\ncluster = "c"\n')

    said = json.loads(ran_without(ASIDE + SERVER, f"COMMANDS = {COMMANDS!r}\n{RUN}", tmp_path))

    assert {name: text for name, text in said.items() if SAID[name] not in text} == {}
    assert list((tmp_path / "records").glob("*.csv"))


def test_the_webhook_and_the_extender_need_the_agent_extra_only(tmp_path: Path) -> None:
    modules = ", ".join(f"pipelines.connect.kubernetes.{name}" for name in ("serving", "webhook", "extender"))
    extra = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]["agent"]

    assert ran_without(ASIDE, f"import {modules}; print('fine')", tmp_path) == "fine\n"
    assert {each.partition(">")[0].replace("-", "_") for each in extra} == {*SERVER}
