"""The log of answers: nothing waits, everything written is read again, the oldest go."""

import os
import subprocess
import sys
import time
import tracemalloc
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from sqlalchemy import text

from modelserve.store import Store, answers
from modelserve.store.answers import (
    AnswerLog,
    AnswerRecord,
    named_answers,
    newest_answers,
    read_answer,
    write_answers,
)
from tests.modelserve.feedback_cases import answer_record


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    opened = Store.open(f"sqlite:///{tmp_path}/serve.db")
    yield opened
    opened.close()


def record(number: int, **changes: object) -> AnswerRecord:
    said = {"at": 1000.0 + number, "models": "runtime.pai.ctr@7", "context": b'{"now": 1}', "response": os.urandom(64)}
    return answer_record(f"a{number:06d}", **{**said, **changes})


def log_of(store: Store, kept: int, kept_bytes: int = 2**30) -> AnswerLog:
    return AnswerLog(store, kept, kept_bytes)


def held(store: Store) -> list[str]:
    return [each.answer_id for each in newest_answers(store)]


def wait_until(holds: Callable[[], bool], deadline_s: float = 10.0) -> None:
    end = time.monotonic() + deadline_s
    while not holds():
        assert time.monotonic() < end, "waited in vain"
        time.sleep(0.01)


def test_what_was_put_is_read_again_to_the_byte(store: Store) -> None:
    log = log_of(store, 100)
    log.start()
    sent = record(1, context=b"\x00\xff{}")

    taken = log.put(sent)
    log.stop()

    assert taken
    assert read_answer(store, "a000001") == sent
    assert read_answer(store, "a000002") is None


def test_the_writer_writes_soon_and_without_being_stopped(store: Store) -> None:
    log = log_of(store, 100)
    log.start()
    try:
        log.put(record(1))
        wait_until(lambda: read_answer(store, "a000001") is not None)
        log.put(record(2))
        wait_until(lambda: read_answer(store, "a000002") is not None)
    finally:
        log.stop()

    assert log.written == 2


def test_only_the_newest_are_kept(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(answers, "PRUNE_EVERY", 10)
    log = log_of(store, 25)
    for number in range(300):
        log.put(record(number))
        log.flush()

    log.stop()

    left = held(store)
    assert 25 <= len(left) <= 25 + 10
    assert left[:25] == [f"a{number:06d}" for number in range(299, 274, -1)]


def test_heavy_answers_go_by_their_weight(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(answers, "PRUNE_EVERY_BYTES", 4 * 100_000)
    log = log_of(store, 1_000, kept_bytes=1_000_000)
    for number in range(30):
        log.put(record(number, response=os.urandom(100_000)))
        log.flush()

    log.stop()

    left = held(store)
    assert left == [f"a{number:06d}" for number in range(29, 29 - len(left), -1)]
    assert 9 <= len(left) <= 9 + 4


def test_many_heavy_records_are_read_a_few_at_a_time(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(answers, "PAGE_BYTES", 1_000_000)
    heavy = [record(number, context=bytes(50_000), response=bytes(400_000)) for number in range(40)]
    write_answers(store, [*heavy, record(40, response=bytes(3_000_000))])
    tracemalloc.start()

    seen = [(each.answer_id, len(each.response)) for each in newest_answers(store, parts=("response",))]

    _, most = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert seen == [("a000040", 3_000_000), *((each.answer_id, 400_000) for each in reversed(heavy))]
    assert most < 3 * 3_000_000


def test_no_more_is_read_than_asked_for(store: Store) -> None:
    ten = [record(number, response=bytes(100_000), models=f"m@{number % 2}") for number in range(10)]
    write_answers(store, ten)

    light = list(newest_answers(store, parts=("context",), limit=3))
    bounded = list(newest_answers(store, limit_bytes=250_000))
    named = list(named_answers(store, ["a000003", "a000007", "none"], limit_bytes=150_000))

    assert [(each.context, each.response) for each in light] == [(b'{"now": 1}', b"")] * 3
    assert [each.answer_id for each in bounded] == ["a000009", "a000008"]
    assert [each.answer_id for each in named] == ["a000007"]


def test_a_log_that_keeps_nothing_writes_nothing(store: Store) -> None:
    log = log_of(store, 0)
    log.start()

    assert log.put(record(1))
    log.stop()

    assert held(store) == []
    assert log.dropped == 0


def test_a_full_queue_drops_and_counts(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(answers, "WAITING", 3)
    log = log_of(store, 100)

    taken = [log.put(record(number)) for number in range(5)]

    assert taken == [True, True, True, False, False]
    assert log.dropped == 2
    log.stop()
    assert held(store) == ["a000002", "a000001", "a000000"]


def test_a_store_that_fails_costs_records_and_nothing_else(store: Store) -> None:
    log = log_of(store, 100)
    with store.writing("breaking") as connection:
        connection.execute(text("ALTER TABLE taut_answers RENAME TO gone"))
    log.start()

    began = time.monotonic()
    taken = log.put(record(1))

    assert taken
    assert time.monotonic() - began < 0.1
    wait_until(lambda: log.dropped == 1)
    with store.writing("mending") as connection:
        connection.execute(text("ALTER TABLE gone RENAME TO taut_answers"))
    log.put(record(2))
    log.stop()
    assert held(store) == ["a000002"]


def test_a_name_that_no_database_holds_is_logged_all_the_same(store: Store) -> None:
    log = log_of(store, 100)

    log.put(record(1, trace="pa\x00i"))
    log.stop()

    assert read_answer(store, "a000001") is not None


@pytest.mark.slow
def test_a_killed_process_loses_only_the_last_moment(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/killed.db"
    code = (
        "import sys, time\n"
        "from modelserve.store import Store\n"
        "from tests.modelserve.store.test_answer_log import log_of, record\n"
        "log = log_of(Store.open(sys.argv[1]), 100_000)\n"
        "log.start()\n"
        "for number in range(1_000_000):\n"
        "    if log.put(record(number)):\n"
        "        print(number, time.monotonic(), flush=True)\n"
        "    time.sleep(0.001)\n"
    )
    root = Path(__file__).resolve().parents[2]
    env = {**os.environ, "PYTHONPATH": str(root)}
    arguments = [sys.executable, "-c", code, url]
    with subprocess.Popen(arguments, stdout=subprocess.PIPE, text=True, cwd=root, env=env) as writer:
        assert writer.stdout is not None
        put = [writer.stdout.readline().split() for _ in range(1500)]
        writer.kill()
        killed_at = time.monotonic()
        put += [line.split() for line in writer.stdout.read().splitlines(keepends=True) if line.endswith("\n")]

    store = Store.open(url)
    kept = set(held(store))
    store.close()
    lost = [float(at) for number, at in put if f"a{int(number):06d}" not in kept]
    assert len(kept) > 500
    assert all(killed_at - at < 2.0 for at in lost)


def test_an_answer_is_written_once_however_often_it_is_sent(store: Store) -> None:
    write_answers(store, [record(1), record(2)])

    write_answers(store, [record(2, response=b"other"), record(3)])

    assert held(store) == ["a000003", "a000002", "a000001"]
    assert b"other" not in {each.response for each in newest_answers(store)}
