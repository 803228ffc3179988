"""Clients that keep calling, each with ids of its own, and try again when a connection breaks or a 50x says so."""

import http.client
import json
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field

AGAIN = frozenset({502, 503, 504})
TRIES = 8


@dataclass
class Tally:
    """What became of the calls."""

    answered: int = 0
    tried_again: int = 0
    lost: list[str] = field(default_factory=list)
    lock: threading.Lock = field(default_factory=threading.Lock)


def body_of(job_id: str, jobs: int = 1) -> bytes:
    asked = {"cpu_cores": 6, "mem_gib": 29.3, "gpus": 0.5}
    one = {"task_type": "ctr", "user": "u2", "group": "g1", "gpu_type": "T4", "instances": 1, "request": asked}
    named = [{**one, "job_id": f"{job_id}/{number}"} for number in range(jobs)]
    return json.dumps({"trace": "pai", "jobs": named}).encode()


class Caller:
    """One client with one connection, kept open as long as it holds."""

    def __init__(self, port: int, tally: Tally) -> None:
        self._port, self._tally = port, tally
        self._connection: http.client.HTTPConnection | None = None

    def ask(self, job_id: str, path: str = "/v1/predictions") -> None:
        """Ask about one job until it is answered; the answer has to be about that job."""
        for attempt in range(TRIES):
            try:
                status, answer = self._once(path, body_of(job_id))
            except (OSError, http.client.HTTPException):
                status, answer = 0, b""
            if status == 200:
                [found] = json.loads(answer)["predictions"]
                assert found["job_id"] == f"{job_id}/0"
                with self._tally.lock:
                    self._tally.answered += 1
                return
            self.close()
            if status not in {0, *AGAIN}:
                break
            with self._tally.lock:
                self._tally.tried_again += 1
            time.sleep(0.02 * 2**attempt)
        with self._tally.lock:
            self._tally.lost.append(f"{job_id}: {status} {answer[:200]!r}")

    def _once(self, path: str, body: bytes) -> tuple[int, bytes]:
        if self._connection is None:
            self._connection = http.client.HTTPConnection("127.0.0.1", self._port, timeout=30)
        self._connection.request("POST", path, body, {"content-type": "application/json"})
        answer = self._connection.getresponse()
        return answer.status, answer.read()

    def close(self) -> None:
        if self._connection is not None:
            self._connection.close()
            self._connection = None


def under_load(port: int, meanwhile: Callable[[], None], *, clients: int = 4, at_least: int = 300) -> Tally:
    """Keep `clients` calling while `meanwhile` does its worst, and for `at_least` calls."""
    tally, over = Tally(), threading.Event()

    def call(name: int) -> None:
        caller, number = Caller(port, tally), 0
        while not over.is_set() or tally.answered < at_least:
            caller.ask(f"{name}.{number}")
            number += 1
            if tally.lost:
                break
        caller.close()

    threads = [threading.Thread(target=call, args=(name,)) for name in range(clients)]
    for thread in threads:
        thread.start()
    try:
        meanwhile()
    finally:
        over.set()
        for thread in threads:
            thread.join(timeout=120)
    assert not any(thread.is_alive() for thread in threads), "a call hangs"
    return tally
