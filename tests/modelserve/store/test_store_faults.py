"""The store under faults by seed: no acknowledged feedback is lost, and the store goes on when the fault is over.

`make fuzz` injects 1000 faults (TAUT_FAULTS), the slow suite fewer.
"""

import os
import shutil
import sqlite3
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest

from modelserve.store import Store
from modelserve.store.finished import newest_finished
from tests.modelserve.store.faulty_writer import KINDS

FAULTS = int(os.environ.get("TAUT_FAULTS", "150"))
HERE = Path(__file__).parent


@pytest.mark.slow
def test_no_acknowledged_write_is_lost_by_faults_of_files_and_clock(tmp_path: Path) -> None:
    compiler, shim, file = shutil.which("gcc"), tmp_path / "faults.so", tmp_path / "serve.db"
    assert compiler is not None, "gcc is not installed; .ci/run installs it"
    subprocess.run([compiler, "-shared", "-fPIC", "-O1", "-o", shim, HERE / "faults.c", "-ldl"], check=True)

    writer = subprocess.run(
        [sys.executable, HERE / "faulty_writer.py", file, "20", str(FAULTS)],
        env={**os.environ, "LD_PRELOAD": str(shim), "PYTHONPATH": str(HERE.parents[2])},
        capture_output=True, text=True, timeout=900, check=False,
    )  # fmt: skip
    lines = [line.split() for line in writer.stdout.splitlines()]
    acknowledged = [line[1] for line in lines if line[0] == "stored"]
    hit = Counter(line[1] for line in lines if line[0] == "fault" and int(line[2]))
    store = Store.open(f"sqlite:///{file}")
    stored = {each.job_id for each in newest_finished(store, limit=1_000_000)}
    store.close()

    assert writer.returncode == 0, writer.stderr[-2000:]
    assert [line for line in lines if line[0] == "broken"] == []
    assert set(acknowledged) <= stored
    assert len([each for each in acknowledged if each.startswith("after-")]) == FAULTS
    assert set(hit) == set(KINDS), hit
    with sqlite3.connect(file) as connection:
        assert connection.execute("PRAGMA integrity_check").fetchall() == [("ok",)]
