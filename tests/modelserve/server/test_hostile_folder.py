"""Processes that taut starts import nothing from the current folder."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from modelserve.server.supervisor import MIRROR, WORKER

ROOT = Path(__file__).resolve().parents[3]
NAMES = ("html", "random", "pickle", "queue", "signal", "sqlalchemy", "modelserve", "pipelines")
POOL = """
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
if __name__ == "__main__":
    import pipelines.cli

    with ProcessPoolExecutor(1, mp_context=get_context("spawn")) as pool:
        pool.submit(abs, -1).result()
"""


@pytest.mark.parametrize("command", [WORKER, MIRROR, None])
def test_a_file_named_like_a_module_is_not_executed(command: tuple[str, ...] | None, tmp_path: Path) -> None:
    hostile, script = tmp_path / "hostile", tmp_path / "pool.py"
    hostile.mkdir()
    script.write_text(POOL)
    for name in NAMES:
        (hostile / f"{name}.py").write_text("open('executed', 'w').close()\nraise SystemExit(99)\n")

    done = subprocess.run(
        command or (sys.executable, script), cwd=hostile, stdin=subprocess.DEVNULL, capture_output=True, timeout=60,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
    )  # fmt: skip

    assert done.returncode != 99
    assert sorted(path.name for path in hostile.iterdir()) == sorted(f"{name}.py" for name in NAMES), done.stderr
