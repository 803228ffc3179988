"""docs/slurm.md carried out on a real Slurm, from an empty lake to advice that is recorded and no request changed."""

import os
import re
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.benchmarks.serving.processes import free_port
from tests.pipelines.connect.slurm.agents import ROOT, wait_for_socket
from tests.pipelines.connect.slurm.closed_loop import is_ready, submit_work, wait_for_end
from tests.pipelines.connect.slurm.running import Cluster, running_cluster, until

PAGE = ROOT / "docs" / "slurm.md"
STEP = re.compile(r"```sh(?P<background> background)?\n(?P<code>.*?)```\n", re.DOTALL)


@pytest.fixture
def fresh() -> Iterator[Cluster]:
    """Yield a cluster of its own, since the accounting of other tests would be part of the page's history."""
    with running_cluster() as cluster:
        yield cluster


@pytest.mark.slow
def test_the_page_leads_from_nothing_to_observed_advice(fresh: Cluster) -> None:
    slurm, first = fresh, list[int]()
    for many in (3, 3):
        first += [submit_work(slurm, "page", mib=40) for _ in range(many)]
        wait_for_end(slurm, first)
        time.sleep(1.0)  # Slurm's times are whole seconds
    home, port = slurm.run / "home", free_port()
    places = {
        "/etc/taut": str(home / "settings"), "/run/taut/slurm.sock": str(slurm.socket), ":8080": f":{port}",
        "/etc/slurm": str(slurm.run / "etc"), "taut job 1\n": f"taut job {first[0]}\n",
    }  # fmt: skip
    environment = {
        **os.environ, **slurm.environment, "PYTHONPATH": str(ROOT), "TAUT_SERVE_PORT": str(port),
        "TAUT_THREADS": "1",
        "PATH": f"{Path(sys.executable).parent}:{slurm.environment['PATH']}",
    }  # fmt: skip
    said = []
    try:
        for number, step in enumerate(STEP.finditer(PAGE.read_text(encoding="utf-8"))):
            code = step["code"]
            for place, here in places.items():
                code = code.replace(place, here)
            if step["background"]:
                _start(slurm, code, number, environment, port)
            else:
                said.append(_carried_out(slurm, code, environment, home))
    finally:
        for name in [name for name in slurm.processes if name.startswith("page-")]:
            slurm.end(name)
    slurm.reload()

    [recorded] = [text for text in said if re.search(r"^train\|", text, re.MULTILINE)]
    assert re.search(r"^train\|\S*cpu=8,mem=4G\S*\|taut [0-9a-f]{16}\b", recorded, re.MULTILINE)
    assert any("--cpus-per-task=" in text for text in said)


def _start(slurm: Cluster, code: str, number: int, environment: dict[str, str], port: int) -> None:
    slurm.start(f"page-{number}", "sh", "-c", f"cd {slurm.run / 'home'}; exec {code.strip()}", **environment)
    if "slurm agent" in code:
        wait_for_socket(slurm.socket)
    else:
        until(lambda: is_ready(f"http://127.0.0.1:{port}"), within_s=150, what="a ready service")


def _carried_out(slurm: Cluster, code: str, environment: dict[str, str], home: Path) -> str:
    done = subprocess.run(
        ["sh", "-euc", code], capture_output=True, text=True, timeout=300, cwd=home, env=environment, check=False
    )
    assert done.returncode == 0, f"{code}\nexit {done.returncode}: {done.stderr}"
    if code.startswith("sbatch"):
        wait_for_end(slurm, [int(done.stdout.split()[-1])])
    return done.stdout
