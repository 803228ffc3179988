"""Clients that keep calling, each with ids of its own; they try again when a connection breaks or a 50x says so."""

import http.client
import json
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

AGAIN = frozenset({502, 503, 504})
TRIES = 8


@dataclass
class Tally:
    """What became of the calls: seconds of those answered, how many tries were repeated, and what else came."""

    taken_s: list[float] = field(default_factory=list)
    tried_again: int = 0
    lost: list[str] = field(default_factory=list)
    lock: threading.Lock = field(default_factory=threading.Lock)

    @property
    def made(self) -> int:
        return len(self.taken_s) + len(self.lost)


def body_of(job_id: str, jobs: int = 1) -> bytes:
    asked = {"cpu_cores": 6, "mem_gib": 29.3, "gpus": 0.5}
    one = {"task_type": "ctr", "user": "u2", "group": "g1", "gpu_type": "T4", "instances": 1, "request": asked}
    named = [{**one, "job_id": f"{job_id}/{number}"} for number in range(jobs)]
    return json.dumps({"trace": "pai", "jobs": named}).encode()


class Caller:
    """One client with one connection, kept open as long as it holds."""

    def __init__(self, port: int, tally: Tally, tries: int) -> None:
        self._tally, self._tries = tally, tries
        self._connection = http.client.HTTPConnection("127.0.0.1", port, timeout=30)

    def ask(self, job_id: str) -> None:
        """Ask about one job until it is answered; the answer has to be about that job."""
        for attempt in range(self._tries):
            began = time.monotonic()
            try:
                status, answer = self._once(body_of(job_id))
            except (OSError, http.client.HTTPException) as error:
                status, answer = 0, repr(error).encode()
            if status == 200:
                [found] = json.loads(answer)["predictions"]
                assert found["job_id"] == f"{job_id}/0"
                with self._tally.lock:
                    self._tally.taken_s.append(time.monotonic() - began)
                return
            self._connection.close()
            if status not in {0, *AGAIN} or attempt == self._tries - 1:
                break
            with self._tally.lock:
                self._tally.tried_again += 1
            time.sleep(0.02 * 2**attempt)
        with self._tally.lock:
            self._tally.lost.append(f"{job_id}: {status} {answer[:200]!r}")

    def _once(self, body: bytes) -> tuple[int, bytes]:
        self._connection.request("POST", "/v1/predictions", body, {"content-type": "application/json"})
        answer = self._connection.getresponse()
        return answer.status, answer.read()

    def close(self) -> None:
        self._connection.close()


@contextmanager
def calling(port: int, *, clients: int = 4, per_s: float | None = None, tries: int = TRIES) -> Iterator[Tally]:
    """Make calls from several clients until the block ends, all together `per_s` a second, or as fast as they can."""
    tally, over = Tally(), threading.Event()

    def client(name: int) -> None:
        caller, number, due = Caller(port, tally, tries), 0, time.monotonic()
        while not over.is_set():
            if per_s is not None:
                due = max(due + clients / per_s, time.monotonic())
                time.sleep(max(due - time.monotonic(), 0.0))
            caller.ask(f"{name}.{number}")
            number += 1
        caller.close()

    threads = [threading.Thread(target=client, args=(name,)) for name in range(clients)]
    for thread in threads:
        thread.start()
    try:
        yield tally
    finally:
        over.set()
        for thread in threads:
            thread.join(timeout=120)
    assert not any(thread.is_alive() for thread in threads), "a call hangs"
