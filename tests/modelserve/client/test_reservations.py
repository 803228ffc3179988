"""Reservations by both clients: against a real service without models, and against wrong answers of a scripted one."""

from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from modelserve.api.app import create_app
from modelserve.client import Client
from modelserve.contract.reservations import MAX_RUNNING
from modelserve.opening import open_service
from modelserve.settings import ServeSettings
from tests.modelserve.running import serving


@pytest.fixture
def address(tmp_path: Path) -> Iterator[str]:
    settings = ServeSettings(bundles=tmp_path, store=f"sqlite:///{tmp_path}/serve.db", trace="pai")
    with closing(open_service(settings)) as service, serving(create_app(service)) as found:
        yield found


def running(job_id: str, first: int = 0, last: int = 20, **changes: object) -> dict[str, object]:
    minutes = range(first, last)
    samples = {
        "at_s": [60.0 * (i + 1) for i in minutes],
        "cpu_cores": [1.0 + i % 3 / 10 for i in minutes],
        "mem_gib": [4.0 for _ in minutes],
    }
    request = {"cpu_cores": 6.0, "mem_gib": 29.0}
    said = {"job_id": job_id, "task_type": "ctr", "request": request, "age_s": 60.0 * last, "samples": samples}
    return {**said, **changes}


def test_more_jobs_than_a_call_takes_are_sent_in_parts(address: str) -> None:
    jobs = [running(f"j{i}", 0, 1) for i in range(MAX_RUNNING + 5)]

    with Client(address, jobs_per_call=10_000) as client:
        found = client.reservations(jobs)

    assert [row.job_id for row in found] == [row["job_id"] for row in jobs]
    assert len({row.answer_id for row in found}) == 2
