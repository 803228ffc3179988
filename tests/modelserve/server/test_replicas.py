"""Two replicas behind the example nginx.conf, with one PostgreSQL: replicas and the store are killed under load.

CI makes 1500 calls. The bar is 10 000: `TAUT_REPLICA_CALLS=10000 pytest -s tests/modelserve/server/test_replicas.py`.
"""

import json
import os
import signal
import statistics
import sys
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.benchmarks.serving.processes import free_port
from tests.deploy.tools import tool
from tests.modelserve.feedback_cases import row
from tests.modelserve.mirrored import Folder
from tests.modelserve.server.load import calling
from tests.modelserve.server.running import Running, check_serving, start, stop, until
from tests.modelserve.server.test_reliability import calls_counted, proxy
from tests.modelserve.store.postgresql import Server, postgresql

pytestmark = pytest.mark.slow

SAMPLE = 1500
CALLS = int(os.environ.get("TAUT_REPLICA_CALLS", SAMPLE))
P99_LIMIT_S = 0.1 if CALLS > SAMPLE else 1.0
"""The bar for a run on a machine that does nothing else; CI runs other tests beside."""
PER_S = 100
BETWEEN = 300
"""Calls between the return of one replica and the death of the other."""


@pytest.fixture(scope="module")
def store() -> Iterator[Server]:
    with postgresql() as server:
        yield server


@pytest.fixture
def replica(tmp_path: Path, small_bundles: dict[str, Path], store: Server) -> Iterator[Callable[[int], Running]]:
    """Return a function that starts a replica on a port and waits until it serves."""
    folder = Folder(tmp_path / "bundles", small_bundles)
    folder.add("runtime.pai.ctr", "1")
    folder.add("usage.pai.ctr", "1")
    said = {"store": store.make_database(f"taut{free_port()}"), "trace": "pai", "drain_s": 0}
    running: list[Running] = []

    def begin(port: int) -> Running:
        values = {f"TAUT_SERVE_{name.upper()}": str(value) for name, value in {**said, "port": port}.items()}
        command = [sys.executable, "-c", "from pipelines.cli import main; main()", "serve"]
        one = start([*command, "--bundles", str(folder.path)], values)
        running.append(one)
        check_serving(one)
        return one

    yield begin
    for one in running:
        stop(one)


def test_a_killed_replica_costs_no_call_and_comes_back(replica: Callable[[int], Running], tmp_path: Path) -> None:
    ports = [free_port(), free_port()]
    replicas = [replica(port) for port in ports]
    kills = 0

    with proxy(tool("nginx"), tmp_path, ports) as address, calling(address, per_s=PER_S, tries=1) as calls:
        while calls.made < CALLS:
            due = min(calls.made + BETWEEN, CALLS)
            until(lambda due=due: calls.made >= due, within_s=300, what="the next calls")
            if calls.made < CALLS:
                victim = kills % 2
                kill(replicas[victim])
                replicas[victim] = again = replica(ports[victim])
                until(lambda again=again: calls_counted(again) > 0, what="calls of the replica that came back")
                kills += 1

    p50, p99 = statistics.quantiles(calls.taken_s, n=100)[49], statistics.quantiles(calls.taken_s, n=100)[98]
    print(f"{calls.made} calls, {kills} kills, {len(calls.lost)} failed, p50 {p50 * 1e3:.1f}, p99 {p99 * 1e3:.1f} ms")
    assert calls.lost == []
    assert kills >= 1
    assert p99 < P99_LIMIT_S


def test_feedback_to_one_replica_is_seen_by_the_other_and_the_store_may_be_killed(
    replica: Callable[[int], Running], tmp_path: Path, store: Server
) -> None:
    first, second = (replica(free_port()) for _ in range(2))
    before = floor_of(second)
    named = asked_of(first, "k1")["answer_id"]
    killed = row("k1", outcome="oom", allocation={"mem_gib": 15.0}, trace="pai", answer_id=named)
    status, taken = post(first.port, "/v1/feedback", {"feedback": [killed]})
    until(lambda: floor_of(second) == 20.0, within_s=10, what="the floor at the other replica")

    assert before < 16.0
    assert (status, taken["accepted"]) == (200, 1)
    workers = [*first.workers(), *second.workers()]
    with (
        proxy(tool("nginx"), tmp_path, [first.port, second.port]) as address,
        calling(address, per_s=PER_S, tries=1) as calls,
    ):
        store.stop()
        try:
            without = [
                post(each.port, "/v1/feedback", {"feedback": [row("k2", trace="pai")]})[0] for each in (first, second)
            ]
            floors = [floor_of(each) for each in (first, second)]
            until(lambda made=calls.made: calls.made >= made + 100, what="calls without the store")
        finally:
            store.start()
        until(
            lambda: post(second.port, "/v1/feedback", {"feedback": [row("k2", trace="pai")]})[0] == 200,
            what="feedback again",
        )
        until(
            lambda: post(first.port, "/v1/feedback", {"feedback": [row("k2", trace="pai")]})[1]["duplicates"] == 1,
            what="both",
        )

    assert calls.lost == []
    assert without == [503, 503]
    assert floors == [20.0] * 2
    assert [*first.workers(), *second.workers()] == workers


def kill(one: Running) -> None:
    """Kill a replica at once, its workers too: the machine is gone."""
    for pid in [one.process.pid, *one.children()]:
        os.kill(pid, signal.SIGKILL)
    one.process.wait(timeout=10)


def post(port: int, path: str, body: object) -> tuple[int, Any]:
    call = urllib.request.Request(f"http://127.0.0.1:{port}{path}", json.dumps(body).encode(), method="POST")
    call.add_header("content-type", "application/json")
    try:
        with urllib.request.urlopen(call, timeout=30) as answer:
            return answer.status, json.loads(answer.read())
    except urllib.error.HTTPError as error:
        with error:
            return error.code, json.loads(error.read())


def floor_of(one: Running) -> float:
    """Return the memory bound of a job of the group whose job is killed: then a fifth above its allocation."""
    [found] = asked_of(one, "f")["recommendations"]
    return found["lower_bound"]["mem_gib"]


def asked_of(one: Running, job_id: str) -> Any:
    asked = {"cpu_cores": 6.0, "mem_gib": 20.0, "gpus": 0.5}
    job = {
        "job_id": job_id,
        "trace": "pai",
        "task_type": "ctr",
        "cluster": "pai",
        "user": "u1",
        "group": "g0",
        "role": "worker",
    }
    status, said = post(one.port, "/v1/recommendations", {"jobs": [{**job, "gpu_type": "T4", "request": asked}]})
    assert status == 200, said
    return said
