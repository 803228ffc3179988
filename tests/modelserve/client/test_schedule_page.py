"""The scheduler loop of `docs/schedule.md` runs against a real service, over HTTP, until all its jobs have ended."""

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from modelserve.client import AsyncClient, Client
from modelserve.contract.placements import ScheduleAnswer
from tests.modelserve.answering import job
from tests.modelserve.running import running

PAGE = Path(__file__).resolve().parents[3] / "docs" / "schedule.md"
[LOOP] = re.findall(r"```python\n(.*?)```", PAGE.read_text(encoding="utf-8"), re.DOTALL)
MACHINES = [{"machine": "m1", "cpu_cores": 16, "mem_gib": 128, "gpus": 4, "gpu_type": "T4"}]


@pytest.fixture(scope="module")
def address(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with running(tmp_path_factory.mktemp("service")) as found:
        yield found


@pytest.fixture
def answers(monkeypatch: pytest.MonkeyPatch) -> list[tuple[dict[str, Any], ScheduleAnswer]]:
    """Keep what the loop asks and is answered."""
    kept: list[tuple[dict[str, Any], ScheduleAnswer]] = []
    ask = Client.schedule

    def schedule(self: Client, cluster: dict[str, Any]) -> ScheduleAnswer:
        kept.append((cluster, ask(self, cluster)))
        return kept[-1][1]

    monkeypatch.setattr(Client, "schedule", schedule)
    return kept


def test_the_loop_runs_every_job_within_the_machines(
    address: str, answers: list[tuple[dict[str, Any], ScheduleAnswer]]
) -> None:
    names: dict[str, Any] = {}
    exec(compile(LOOP.replace("http://127.0.0.1:8080", address), "schedule.md", "exec"), names)

    assert (names["waiting"], names["running"], len(names["ends_s"])) == ([], {}, 40)
    for cluster, answer in answers:
        starts = [row for row in answer.schedule if row.starts]
        for machine in cluster["machines"]:
            held = [row for row in cluster["running"] if row["on"][0]["machine"] == machine["machine"]]
            cores = [row["request"]["cpu_cores"] for row in held]
            cores += [row.given.cpu_cores or 0.0 for row in starts if row.on[0].machine == machine["machine"]]
            assert sum(cores) <= machine["cpu_cores"] + 1e-6
    # Sixteen cores hold two jobs of six cores at once, but more of what they are given.
    assert max(len(cluster["running"]) for cluster, _ in answers) > 2 * 2


def test_both_clients_answer_alike(address: str) -> None:
    import asyncio

    body = {"machines": MACHINES, "jobs": [job(i, instances=1) for i in range(6)], "cluster": "pai"}

    async def ask() -> ScheduleAnswer:
        async with AsyncClient(address) as client:
            return await client.schedule(body)

    with Client(address) as client:
        said, also = client.schedule(body), asyncio.run(ask())

    assert [row.target for row in said.schedule] == [row.target for row in also.schedule]
