"""The tally of the log: equal to the sum of all weights, though only the ends are summed; bounds hold with it."""

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from sqlalchemy import func, select, update

from modelserve.store import Store, answer_writing
from modelserve.store.answer_writing import StoreWriter, Tally, prune_answers, row_of
from modelserve.store.answers import AnswerRecord, delete_answers
from modelserve.store.tables import ANSWERS
from tests.modelserve.answering import write_answers


@pytest.fixture
def store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Store]:
    monkeypatch.setattr(answer_writing, "BLOCK", 10)
    opened = Store.open(f"sqlite:///{tmp_path}/serve.db")
    yield opened
    opened.close()


def records(first: int, count: int, rng: np.random.Generator) -> list[AnswerRecord]:
    return [
        AnswerRecord(
            answer_id=f"a{number:06d}", at=1.0, kind="prediction", caller="tester", trace="pai", models="m@1",
            context=b"{}", features=bytes(int(rng.integers(0, 2000))), response=b"{}",
        )
        for number in range(first, first + count)
    ]  # fmt: skip


def weighed(store: Store, by: Tally) -> int:
    with store.reading("weighing") as connection:
        return by.weight_bytes(connection)


def summed(store: Store) -> int:
    with store.reading("summing") as connection:
        return int(connection.execute(select(func.coalesce(func.sum(ANSWERS.c.weight), 0))).scalar_one())


@pytest.mark.parametrize("seed", range(3))
def test_the_tally_is_the_sum_whoever_writes_and_prunes(store: Store, seed: int) -> None:
    rng = np.random.default_rng(seed)
    ours, others, number = Tally(), Tally(), 0

    for _ in range(60):
        count = int(rng.integers(1, 40))
        write_answers(store, records(number, count, rng))
        number += count
        if rng.random() < 0.5:
            prune_answers(store, int(rng.integers(1, 200)), int(rng.integers(1, 200_000)), tally=others)
        if rng.random() < 0.5:
            assert weighed(store, ours) == summed(store)

    assert weighed(store, Tally()) == weighed(store, ours) == summed(store)


def test_the_middle_is_looked_at_in_turn(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(answer_writing, "AGAIN", 1)
    write_answers(store, records(0, 100, np.random.default_rng(1)))
    held = Tally()
    before = weighed(store, held)
    with store.writing("changing the middle") as connection:
        connection.execute(update(ANSWERS).where(ANSWERS.c.n.between(40, 44)).values(weight=0))
        connection.execute(ANSWERS.delete().where(ANSWERS.c.n.between(50, 59)))

    said = [weighed(store, held) for _ in range(10)]

    assert said[:4] == [before] * 4
    assert before > said[4] > said[5]
    assert said[5:] == [summed(store)] * 5


def test_what_was_not_deleted_after_all_is_counted_again(store: Store) -> None:
    write_answers(store, records(0, 100, np.random.default_rng(1)))
    held = Tally()
    with store.engine.connect() as connection:
        connection.execute(ANSWERS.delete().where(ANSWERS.c.n < 50))
        held.weight_bytes(connection)
        connection.rollback()

    assert weighed(store, held) == summed(store)


def test_an_empty_log_weighs_nothing(store: Store) -> None:
    held = Tally()
    write_answers(store, records(0, 30, np.random.default_rng(1)))
    weighed(store, held)
    delete_answers(store, [f"a{number:06d}" for number in range(30)])

    assert weighed(store, held) == weighed(store, Tally()) == 0


def test_the_bounds_hold_with_several_writers(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(answer_writing, "PRUNE_EVERY", 15)
    rng = np.random.default_rng(5)
    writers = [StoreWriter(store, kept=120, kept_bytes=60_000) for _ in range(2)]

    for turn in range(150):
        batch = records(turn * 5, 5, rng)
        writers[turn % 2].write([row_of(each) for each in batch])
        if turn % 20 == 19:  # a user is forgotten
            delete_answers(store, [f"a{number:06d}" for number in range(turn * 5 - 40, turn * 5 - 20)])
        # Each of the two may have written so much since it last pruned.
        assert summed(store) <= 60_000 + 2 * 15 * 2300

    assert summed(store) > 30_000
