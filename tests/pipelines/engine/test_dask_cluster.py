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

from pipelines.engine.engine import Local
from pipelines.errors import EngineError, TrainingError
from pipelines.models.retrain import train_units
from tests.benchmarks.serving.processes import free_port
from tests.pipelines.engine.work import Job, Mortal, held, runs, square
from tests.pipelines.lake.generic.own_rows import ROWS, written_as_csv
from tests.pipelines.lake.test_ingest_engines import DOOMED, clusters_written, ingested
from tests.pipelines.models.test_retrain import SETTING, UNITS

pytest.importorskip("distributed", reason="the optional group dask is not installed")

from pipelines.engine import dask_cluster
from pipelines.engine.dask_cluster import Dask

pytestmark = [pytest.mark.slow, pytest.mark.filterwarnings("default")]


@contextmanager
def cluster(folder: Path, *options: str) -> Iterator[tuple[str, list["subprocess.Popen[bytes]"]]]:
    """Start a scheduler and two workers as a user does; yield its address and the processes, the scheduler first."""
    address = f"tcp://127.0.0.1:{free_port()}"
    host, port = "127.0.0.1", address.rpartition(":")[2]
    common = ["--no-dashboard", "--host", host]
    made = [[sys.executable, "-m", "distributed.cli.dask_scheduler", *common, "--port", port]]
    worker = [sys.executable, "-m", "distributed.cli.dask_worker", address, *common, "--nthreads", "1", *options]
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


def test_an_absent_scheduler_is_an_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(dask_cluster, "CONNECT_S", 1)
    with pytest.raises(EngineError, match=r"no Dask scheduler answers at tcp://127\.0\.0\.1:9"):
        list(Dask("tcp://127.0.0.1:9", 1).run(square, tmp_path, jobs()))


def test_a_scheduler_that_goes_during_an_ingest_leaves_the_lake_as_it_was(running: Cluster, tmp_path: Path) -> None:
    address, [scheduler, *_] = running
    lake, source, runs = tmp_path / "lake", tmp_path / "from", tmp_path / "runs"
    source.mkdir(), runs.mkdir()
    clusters_written(source)
    ingested(source, lake, Local())
    before = held(lake)
    written_as_csv(source / "part-north.csv", ROWS[:2])

    def kill_once_it_runs() -> None:
        while not list(runs.iterdir()):
            time.sleep(0.05)
        scheduler.kill()

    killer = threading.Thread(target=kill_once_it_runs)
    killer.start()
    endless = Mortal(engine=Dask(address, 1), folder=runs, doomed=DOOMED, after_s=600.0)
    with pytest.raises(EngineError, match=r"is gone; nothing was committed. Start it again and repeat the command$"):
        ingested(source, lake, endless)
    killer.join()

    assert held(lake) == before
    assert not (lake / "staging").exists()


@pytest.fixture
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    """Wait seconds for a worker, not a minute."""
    monkeypatch.setattr(dask_cluster, "WORKERS_S", 3)
    monkeypatch.setattr(dask_cluster, "CHECK_S", 1)


@pytest.mark.usefixtures("impatient")
def test_a_cluster_without_any_worker_left_is_an_error(tmp_path: Path) -> None:
    with cluster(tmp_path, "--no-nanny") as (address, [_, *workers]):
        (tmp_path / "runs").mkdir()

        def kill_once_it_runs() -> None:
            while not runs(tmp_path / "runs"):
                time.sleep(0.05)
            for each in workers:
                each.kill()

        killer = threading.Thread(target=kill_once_it_runs)
        killer.start()
        with pytest.raises(EngineError, match=r"has no worker that takes work after 3 s; nothing was committed.*Start"):
            list(Dask(address, 1).run(square, tmp_path / "runs", jobs(wait_s=20.0)))
        killer.join()


@pytest.mark.usefixtures("impatient")
def test_workers_that_stay_short_of_memory_are_an_error(tmp_path: Path) -> None:
    """Above 80 % of its limit a worker takes no units; above 95 % it is killed."""
    (tmp_path / "runs").mkdir()
    with cluster(tmp_path, "--memory-limit", "1GB") as (address, _):
        filling = [Job(number=n, mib=740, wait_s=1.0) for n in range(6)]
        with pytest.raises(EngineError, match=r"has no worker that takes work.*needs a larger --memory-limit"):
            list(Dask(address, 1).run(square, tmp_path / "runs", filling))


def test_beyond_the_memory_limit_of_workers_units_models_and_shared_data_are_given_up(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "runs").mkdir()
    beyond = r"several workers died.*lack of memory; nothing was committed.*larger --memory-limit; .* --newest$"
    monkeypatch.setenv("DASK_DISTRIBUTED__SCHEDULER__ALLOWED_FAILURES", "1")
    monkeypatch.setattr(dask_cluster, "RETRIES", 1)
    with cluster(tmp_path, "--memory-limit", "260MB") as (address, _):
        engine = Dask(address, 1)
        with pytest.raises(EngineError, match=f"job 1: {beyond}"):
            list(engine.run(square, tmp_path / "runs", [Job(number=1, mib=400, wait_s=20.0)]))
        assert 2 <= len(runs(tmp_path / "runs")) <= 4
        with pytest.raises(EngineError, match=f"the runtime model of ctr: {beyond}"):
            train_units(engine, SETTING, UNITS[:1])
        with pytest.raises(EngineError, match=f"job 0: {beyond}"):
            list(engine.run(shared_size, bytes(400 << 20), [Job(number=0)]))
        assert list(engine.run(square, tmp_path / "runs", [Job(number=2)])) == [4]


def shared_size(shared: bytes, _: Job) -> int:
    return len(shared)
