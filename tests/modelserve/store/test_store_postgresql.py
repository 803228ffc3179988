"""The store in a real PostgreSQL: the same promises as in a file, and a server that goes away and comes back."""

import time
from collections.abc import Iterator

import pytest

from modelserve.callers import ANYONE
from modelserve.contract.requests import ModeBody
from modelserve.errors import StoreError
from modelserve.store.answers import newest_answers, prune_answers, read_answer, write_answers
from modelserve.store.finished import named_finished
from tests.modelserve.feedback_cases import ACCOUNTING, body, row, service_of
from tests.modelserve.store.postgresql import Server, postgresql
from tests.modelserve.store.test_answer_log import log_of, record
from tests.modelserve.store.test_store import check_kill_loses_nothing, check_writers_share

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def server() -> Iterator[Server]:
    with postgresql() as made:
        yield made


def test_several_processes_lose_and_double_nothing(server: Server) -> None:
    check_writers_share(server.make_database("shared"))


def test_a_killed_writer_leaves_everything_it_acknowledged(server: Server) -> None:
    check_kill_loses_nothing(server.make_database("killed"))


def test_feedback_modes_and_answers_are_as_in_a_file(server: Server) -> None:
    url = server.make_database("whole")
    service, other = service_of(url), service_of(url)
    rows = [row("a"), row("b", outcome="oom", allocation={"mem_gib": 10.0})]

    taken = service.take_feedback(body([*rows, row("a")]), ACCOUNTING)
    service.set_mode(ModeBody(trace="pai", mode="enforce"), ANYONE)
    log = log_of(service.store, 10)
    log.put(record(1, context=b"\x00\xff"))
    log.stop()

    assert (taken.accepted, taken.duplicates) == (2, 1)
    assert other.feed.fresh().mode("pai", "ctr", None) == "enforce"
    assert other.feed.learned.memory_floor_gib("pai", "pai", "g0", "worker") == 20.0
    [realised] = other.read_modes(ANYONE).realised
    assert (realised.jobs, realised.shrunk_jobs, realised.kills) == (2, 1, 1)
    assert realised.hours["mem_gib"].saved == pytest.approx(20.0)
    named = named_finished(other.store, {("pai", "b"), ("pai", "nobody"), ("pai", "nul\x00")})
    assert [(each.job_id, each.outcome) for each in named] == [("b", "oom")]
    logged = read_answer(other.store, "a000001")
    assert logged is not None
    assert logged.context == b"\x00\xff"
    service.store.close()
    other.store.close()


def test_the_log_is_bounded_and_searched_as_in_a_file(server: Server) -> None:
    service = service_of(server.make_database("heavy"))
    write_answers(service.store, [record(i, response=bytes(100_000), models=f"m_{i % 2}@1") for i in range(30)])

    gone = prune_answers(service.store, kept=20, kept_bytes=1_000_000)
    left = [each.answer_id for each in newest_answers(service.store, limit_bytes=500_000)]

    assert gone == 21
    assert left == ["a000029", "a000028", "a000027", "a000026"]
    service.store.close()


def test_a_server_that_goes_away_costs_no_answer_and_comes_back(server: Server) -> None:
    url = server.make_database("away")
    service = service_of(url)
    service.set_mode(ModeBody(trace="pai", mode="enforce"), ANYONE)
    log = log_of(service.store, 100)
    log.start()

    server.stop()
    try:
        began = time.monotonic()
        kept = [service.feed.fresh().mode("pai", "ctr", None) for _ in range(100)]
        taken = log.put(record(1))
        took_s = time.monotonic() - began
        with pytest.raises(StoreError):
            service.take_feedback(body([row("a")]), ACCOUNTING)
    finally:
        server.start()

    assert set(kept) == {"enforce"}
    assert taken
    assert took_s < 2.0
    assert service.feed.trouble is not None
    assert service.take_feedback(body([row("a")]), ACCOUNTING).accepted == 1
    assert service.feed.trouble is None
    log.stop()
    service.store.close()
