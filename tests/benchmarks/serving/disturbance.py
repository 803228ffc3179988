"""What moves while the soak runs: feedback that comes in, and an alias of the registry that goes to and fro.

Each is a thread that counts what it did and what went wrong. Called by `tests.benchmarks.serving.soak`.
"""

import http.client
import json
import threading
from collections import Counter
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from typing import Final
from urllib.parse import urlsplit

import numpy as np

from modelserve.contract.requests import JobRow

ROWS: Final = 10
"""Finished jobs in one call of feedback."""
ROWS_AT_ONCE: Final = 1000
"""Finished jobs in one call that makes up for a day."""


class Disturbance(threading.Thread):
    """Something done again and again until told to stop; what it raises is counted and kept."""

    def __init__(self, every_s: float) -> None:
        super().__init__(daemon=True)
        self.every_s = every_s
        self.counts: Counter[str] = Counter()
        self.complaints: list[str] = []
        self._over = threading.Event()

    def act(self, number: int) -> None:
        """Do it once."""
        raise NotImplementedError

    def run(self) -> None:
        number = 0
        while not self._over.wait(self.every_s):
            try:
                self.act(number)
                self.counts["done"] += 1
            except Exception as error:  # whatever it is, the soak goes on and tells of it
                self.counts["failed"] += 1
                self.complaints.append(f"{type(self).__name__} {number}: {type(error).__name__}: {str(error)[:300]}")
            number += 1

    def stop(self) -> None:
        """End it, once what is under way is done."""
        self._over.set()
        self.join(timeout=60)


class Feedback(Disturbance):
    """Finished jobs of this minute, reported `ROWS` at a time over one connection."""

    def __init__(self, url: str, jobs: Sequence[JobRow], every_s: float) -> None:
        super().__init__(every_s)
        self._connection = http.client.HTTPConnection(urlsplit(url).netloc, timeout=30)
        self._jobs = jobs
        self._rng = np.random.default_rng(0)

    def catch_up(self, count: int) -> None:
        """Report jobs that ended over the last day, evenly and in their order: what a service at work knows."""
        now = datetime.now(UTC)
        ends = [now - timedelta(days=1) * (1 - place / count) for place in range(count)]
        for start in range(0, count, ROWS_AT_ONCE):
            told = enumerate(ends[start : start + ROWS_AT_ONCE], start=start)
            self._report([self._row(f"past-{number:08d}", number, end) for number, end in told])

    def act(self, number: int) -> None:
        numbers = range(number * ROWS, (number + 1) * ROWS)
        self._report([self._row(f"ended-{each:08d}", each, datetime.now(UTC)) for each in numbers])

    def _report(self, rows: Sequence[dict[str, object]]) -> None:
        body = json.dumps({"feedback": rows})
        self._connection.request("POST", "/v1/feedback", body, {"Content-Type": "application/json"})
        answer = self._connection.getresponse()
        said = answer.read()
        if answer.status != 200:
            raise RuntimeError(f"{answer.status} {said[:300]!r}, expected 200")

    def _row(self, job_id: str, number: int, end: datetime) -> dict[str, object]:
        job = self._jobs[number % len(self._jobs)]
        kept = job.model_dump(mode="json", exclude_defaults=True, exclude={"submit_ts"})
        run_s = float(np.round(self._rng.lognormal(5.0, 1.0), 1))
        start = end - timedelta(seconds=run_s)
        asked = job.request
        used = {"cpu_cores": _part(asked.cpu_cores, 0.4), "mem_max_gib": _part(asked.mem_gib, 0.5)}
        times = {"submit_ts": start.isoformat(), "start_ts": start.isoformat(), "end_ts": end.isoformat()}
        return {**kept, **times, "job_id": job_id, "outcome": "completed", "used": used}


class AliasMoves(Disturbance):
    """The alias `champion` of one model, moved from version to version and back."""

    def __init__(self, tracking_uri: str, name: str, versions: Sequence[str], every_s: float) -> None:
        super().__init__(every_s)
        from mlflow import MlflowClient

        self._client = MlflowClient(tracking_uri=tracking_uri)
        self._name, self._versions = name, versions

    def act(self, number: int) -> None:
        self._client.set_registered_model_alias(
            self._name, "champion", self._versions[(number + 1) % len(self._versions)]
        )


def _part(asked: float | None, share: float) -> float | None:
    return None if asked is None else asked * share
