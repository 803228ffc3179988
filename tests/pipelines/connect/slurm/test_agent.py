"""The agent between plugin and service: its answers over a real socket, under each fault of the service."""

import asyncio
import contextlib
import socket
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from prometheus_client.parser import text_string_to_metric_families

from pipelines.connect.slurm.agent import Agent, Counts, _write_metrics, client_of, serve
from pipelines.connect.slurm.policy import SlurmSettings
from pipelines.errors import BadUsage
from tests.modelserve.client.services import Answer, answering, dripping, http, replying, serving, silent

REQUEST = b"batch=1\nuser_name=anna\nname=train\npartition=gpu\ncpus_per_task=8\nmin_cpus=8\nmin_mem_per_node=65536\n\n"
EMPTY = b"end=1\n"
FAULTS = {
    "silent": silent,
    "drips": dripping,
    "500": replying(http(b"{}", "500 Internal Server Error")),
    "garbage": replying(b"\x00\x01garbage"),
    "no JSON": replying(http(b"<html>")),
    "closes": replying(b""),
    "other job": answering(lambda rows: [{**rows[0], "job_id": "other"}]),
    "absurd": answering(lambda rows: [{**rows[0], "target": {"cpu_cores": 999.0, "mem_gib": 999.0, "gpus": 0.0}}]),
}


@pytest.fixture
def path() -> Iterator[Path]:
    with tempfile.TemporaryDirectory(dir="/tmp", prefix="taut-agent-") as short:
        yield Path(short) / "s"


def asked(
    path: Path,
    *requests: bytes,
    service: Answer,
    counts: Counts | None = None,
    pause_s: float = 0.0,
    **settings: object,
) -> tuple[list[bytes], list[str], float, int]:
    """Send requests to an agent, one after another: answers, log, seconds of the slowest, calls of the service."""
    log: list[str] = []
    slowest = 0.0

    async def run(address: str) -> list[bytes]:
        nonlocal slowest
        values = {"cluster": "taut", "mode": "enforce", "services": (address,), **settings}
        made = SlurmSettings.model_validate(values)
        up = asyncio.Event()
        async with client_of(made) as client:
            agent = Agent(settings=made, client=client, say=log.append, counts=counts or Counts())
            task = asyncio.create_task(serve(path, agent.answer, deadline_s=made.deadline_ms / 1000, ready=up.set))
            await up.wait()
            answers = []
            for request in requests:
                await asyncio.sleep(pause_s)
                started = time.monotonic()
                reader, writer = await asyncio.open_unix_connection(path)
                writer.write(request)
                answers.append(await reader.read())
                writer.close()
                slowest = max(slowest, time.monotonic() - started)
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)
        return answers

    with serving(service) as running:
        answers = asyncio.run(run(running.address))
        return answers, log, slowest, len(running.bodies)


def test_advice_of_the_service_becomes_amounts(path: Path) -> None:
    [answer], log, _, calls = asked(path, REQUEST, service=answering())
    fields = dict(line.split("=", 1) for line in answer.decode().splitlines())
    assert fields["cpus_per_task"] == "3"
    assert fields["min_mem_per_node"] == "4711"
    assert fields["admin_comment"] == "taut x-1 mem 65536->4711 MiB, cpus-per-task 8->3"
    assert fields["end"] == "1"
    assert calls == 1
    assert "job 'train'" in log[-1]
    assert not path.exists()


@pytest.mark.parametrize("fault", FAULTS)
def test_a_fault_of_the_service_gives_an_empty_answer_in_time(path: Path, fault: str) -> None:
    [answer], log, slowest, _ = asked(path, REQUEST, service=FAULTS[fault])
    assert not any(line.startswith((b"min_", b"cpus")) for line in answer.splitlines())
    assert answer.endswith(EMPTY)
    assert slowest < 0.7
    assert "no advice" in log[-1] or "no advice" in log[-2]


def test_a_failing_service_is_left_alone_after_three_calls(path: Path) -> None:
    counts = Counts()
    answers, log, _, calls = asked(path, *[REQUEST] * 5, service=FAULTS["500"], counts=counts)
    assert answers == [EMPTY] * 5
    assert calls <= 3
    assert "is tried again" in log[-1]
    assert counts.lost["unavailable"] + counts.lost["late"] == 3  # a busy machine may be late at the first
    assert counts.lost["resting"] == 2


def test_a_service_that_answers_again_is_found_without_a_submission(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("pipelines.connect.slurm.agent.RETRY_S", 0.01)
    good, bad = answering(), FAULTS["500"]
    counts = Counts()
    answers, log, _, calls = asked(
        path,
        *[REQUEST] * 4,
        service=lambda sock, body, service: (bad if len(service.bodies) <= 4 else good)(sock, body, service),
        counts=counts,
        pause_s=0.2,
    )
    assert [answer == EMPTY for answer in answers] == [True, True, True, False]
    assert calls == 3 + 2 + 1  # the agent's own trials: one more fails, one is answered
    assert "the service answers again" in log
    assert (counts.answered, counts.lost.total()) == (1, 3)


def test_a_slow_service_costs_the_advice_and_is_counted_as_late(path: Path) -> None:
    counts = Counts()
    asked(path, b"lost=7\n" + REQUEST, service=silent, counts=counts, deadline_ms=50)
    assert counts.lost == {"late": 1, "script": 7}


def test_the_metrics_are_prometheus_text_in_a_file_that_all_may_read(path: Path) -> None:
    counts = Counts(answered=2_000_001)
    counts.lost.update(late=3)
    for seconds in (0.004, 0.15, 0.7):
        counts.took(seconds)

    async def run() -> None:
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(0.1):
                await _write_metrics(path.with_suffix(".prom"), counts, pytest.fail)

    asyncio.run(run())
    found = path.with_suffix(".prom")
    samples = {
        (sample.name, *sample.labels.values()): sample.value
        for family in text_string_to_metric_families(found.read_text())
        for sample in family.samples
    }
    assert found.stat().st_mode & 0o777 == 0o644
    assert samples["taut_agent_asked_total",] == 2_000_004
    assert {labels[0]: value for (name, *labels), value in samples.items() if name == "taut_agent_lost_total"} == {
        "late": 3, "unavailable": 0, "resting": 0, "unreadable": 0, "script": 0,
    }  # fmt: skip
    within = [samples["taut_agent_call_seconds_bucket", bound] for bound in ("0.01", "0.1", "0.2", "+Inf")]
    assert within == [1, 1, 2, 3]


@pytest.mark.parametrize(
    ("request_", "settings"),
    [
        (b"nonsense\n\n", {}),
        (b"comment=taut=off\n" + REQUEST, {}),
        (REQUEST, {"mode": "off"}),
        (b"x" * 100_000 + b"\n\n", {}),
        (b"min_cpus=1", {"deadline_ms": 20}),
    ],
)
def test_what_is_not_asked_gets_an_empty_answer(path: Path, request_: bytes, settings: dict[str, object]) -> None:
    [answer], _, _, calls = asked(path, request_, service=answering(), **settings)
    assert (answer, calls) == (EMPTY, 0)


def test_a_second_agent_and_a_file_in_the_way_are_refused(path: Path) -> None:
    async def run() -> None:
        await serve(path, lambda _: asyncio.sleep(0), deadline_s=1.0, ready=lambda: None)  # type: ignore[arg-type,return-value]

    with socket.socket(socket.AF_UNIX) as other:
        other.bind(str(path))
        other.listen(1)
        with pytest.raises(BadUsage, match="another agent"):
            asyncio.run(run())
    path.unlink()
    path.write_text("mine")
    with pytest.raises(BadUsage, match="no socket"):
        asyncio.run(run())
    assert path.read_text() == "mine"
