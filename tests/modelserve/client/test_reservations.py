"""Reservations by both clients: against a real service without models, and against wrong answers of a scripted one."""

import asyncio
import math
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from modelserve.api.app import create_app
from modelserve.client import AsyncClient, Client
from modelserve.contract.reservations import MAX_RUNNING, Reserved
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


def test_both_clients_get_the_same_reservations(address: str) -> None:
    jobs = [running("a"), running("b", 0, 1), running("c")]
    jobs[2]["samples"]["cpu_cores"][5] = math.nan

    async def ask() -> list[Reserved]:
        async with AsyncClient(address) as client:
            return await client.reservations(jobs, trace="pai")

    with Client(address) as client:
        waited = client.reservations(jobs, trace="pai")
    awaited = asyncio.run(ask())

    assert [row.reason for row in waited] == ["measured", "probation", "refused"]
    assert [(each.field, each.why, each.samples) for each in waited[2].refused] == [
        ("samples.cpu_cores", "not_finite", (5,))
    ]
    assert waited[0].answer_id != awaited[0].answer_id
    assert [row.model_copy(update={"answer_id": ""}) for row in waited] == [
        row.model_copy(update={"answer_id": ""}) for row in awaited
    ]


def test_more_jobs_than_a_call_takes_are_sent_in_parts(address: str) -> None:
    jobs = [running(f"j{i}", 0, 1) for i in range(MAX_RUNNING + 5)]

    with Client(address, jobs_per_call=10_000) as client:
        found = client.reservations(jobs)

    assert [row.job_id for row in found] == [row["job_id"] for row in jobs]
    assert len({row.answer_id for row in found}) == 2
