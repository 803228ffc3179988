"""The engine `dask`: workers die, the scheduler goes, memory runs out; results are those of the local engine."""

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from pipelines.errors import EngineError, TrainingError
from tests.benchmarks.serving.processes import free_port
from tests.pipelines.engine.work import Job, runs, square

pytest.importorskip("distributed", reason="the optional group dask is not installed")

from pipelines.engine import dask_cluster
from pipelines.engine.dask_cluster import Dask

pytestmark = [pytest.mark.slow, pytest.mark.filterwarnings("default")]


@contextmanager
def cluster(folder: Path) -> Iterator[tuple[str, list["subprocess.Popen[bytes]"]]]:
    """Start a scheduler and two workers as a user does; yield its address and the processes, the scheduler first."""
    address = f"tcp://127.0.0.1:{free_port()}"
    host, port = "127.0.0.1", address.rpartition(":")[2]
    common = ["--no-dashboard", "--host", host]
    made = [[sys.executable, "-m", "distributed.cli.dask_scheduler", *common, "--port", port]]
    worker = [sys.executable, "-m", "distributed.cli.dask_worker", address, *common, "--nthreads", "1"]
    made += [[*worker, "--local-directory", str(folder / name)] for name in ("a", "b")]
    with (folder / "cluster.log").open("wb") as log:
        started = [subprocess.Popen(each, stdout=log, stderr=log, start_new_session=True) for each in made]
    try:
        yield address, started
    finally:
        for each in started:
            os.killpg(each.pid, signal.SIGKILL)  # a worker's own child, too
            each.wait(timeout=30)


Cluster = tuple[str, list["subprocess.Popen[bytes]"]]


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    with cluster(tmp_path_factory.mktemp("cluster")) as started:
        yield started


def jobs(*, deaths: int = 0, wait_s: float = 0.0) -> list[Job]:
    return [Job(number=n, deaths=deaths * (n == 1), wait_s=wait_s) for n in range(6)]


def test_a_worker_that_dies_costs_its_own_unit_alone(running: Cluster, tmp_path: Path) -> None:
    found = list(Dask(running[0], 1).run(square, tmp_path, jobs(deaths=1, wait_s=0.1)))

    assert found == [n**2 for n in range(6)]
    assert runs(tmp_path) == [0, 1, 1, 2, 3, 4, 5]


def test_the_error_of_a_unit_is_raised_as_it_is(running: Cluster, tmp_path: Path) -> None:
    with pytest.raises(TrainingError, match="job 2 failed"):
        list(Dask(running[0], 1).run(square, tmp_path, [Job(number=2, fails=True)]))


def test_a_unit_that_always_kills_its_worker_is_given_up(running: Cluster, tmp_path: Path) -> None:
    with pytest.raises(EngineError, match=r"job 3: several workers died.*nothing was committed"):
        list(Dask(running[0], 1).run(square, tmp_path, [Job(number=3, deaths=99)]))


def test_other_versions_of_packages_are_refused(
    running: Cluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(dask_cluster, "version", lambda _: "0.0")
    with pytest.raises(EngineError, match=r"has taut .*; expected 0\.0, as here"):
        list(Dask(running[0], 1).run(square, tmp_path, jobs()))


def test_a_scheduler_that_is_absent_or_goes_gives_an_error(running: Cluster, tmp_path: Path) -> None:
    with pytest.raises(EngineError, match=r"no Dask scheduler answers at tcp://127\.0\.0\.1:9"):
        list(Dask("tcp://127.0.0.1:9", 1).run(square, tmp_path, jobs()))
    address, [scheduler, *_] = running

    def kill_once_it_runs() -> None:
        while not runs(tmp_path):
            time.sleep(0.05)
        scheduler.kill()

    killer = threading.Thread(target=kill_once_it_runs)
    killer.start()
    begun = time.monotonic()
    with pytest.raises(EngineError, match="is gone; nothing was committed"):
        list(Dask(address, 1).run(square, tmp_path, jobs(wait_s=20.0)))
    killer.join()
    assert time.monotonic() - begun < 60.0
