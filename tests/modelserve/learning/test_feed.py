"""The feed: nothing is missed and nothing taught twice, whatever the store or a history does meanwhile."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest
from sqlalchemy import text

from features.errors import ContractError
from features.online import EndedRun
from modelserve.callers import ANYONE
from modelserve.contract.requests import ModeBody
from modelserve.learning import feed as feeds
from modelserve.learning.feed import Feed
from modelserve.store.changes import Brake, write_brake
from tests.modelserve.feedback_cases import ACCOUNTING, FakeModels, body, row


def rename(service: Any, old: str, new: str) -> None:
    with service.store.writing("renaming") as connection:
        connection.execute(text(f"ALTER TABLE {old} RENAME TO {new}"))


def report(service: Any, *job_ids: str) -> None:
    service.take_feedback(body([row(job_id) for job_id in job_ids]), ACCOUNTING)


def test_much_news_comes_in_pages_and_in_order(service: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(feeds, "PAGE", 3)
    other = FakeModels()
    reader = Feed(service.store, other, service.settings)
    names = [f"j{i}" for i in range(10)]
    report(service, *names[:5])
    service.set_mode(ModeBody(trace="pai", mode="enforce"), ANYONE)
    report(service, *names[5:])

    assert reader.poll() == 11
    assert other.ids() == names
    assert reader.learned.mode("pai", "ctr", None) == "enforce"
    assert reader.poll() == 0


def test_what_was_there_before_comes_with_the_models_and_not_again(service: Any) -> None:
    report(service, "a", "b")
    models = FakeModels()
    reader = Feed(service.store, models, service.settings)

    assert [run.job_id for run in reader.past("pai")] == ["a", "b"]
    assert reader.past("philly") == []
    assert reader.poll() == 0
    assert models.ids() == []


def test_no_cluster_takes_the_past_of_another(service: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(feeds, "PAST_RUNS", 2)
    report(service, "a", "b", "c")
    service.take_feedback(body([row(f"w{i}", cluster="west") for i in range(5)]), ACCOUNTING)

    assert [run.job_id for run in service.feed.past("pai")] == ["b", "c", "w3", "w4"]


def test_while_the_store_is_away_the_last_state_stands(service: Any) -> None:
    service.set_mode(ModeBody(trace="pai", mode="enforce"), ANYONE)
    now = [100.0]
    models = FakeModels()
    reader = Feed(service.store, models, service.settings, monotonic=lambda: now[0])
    report(service, "a")
    rename(service, "taut_store", "gone")

    assert reader.poll() == 0
    assert reader.fresh().mode("pai", "ctr", None) == "enforce"
    assert "taut_store" in str(reader.trouble)

    rename(service, "gone", "taut_store")
    assert reader.fresh().seq == 1, "a store that failed is left alone for a while"
    now[0] += feeds.RETRY_S
    assert reader.fresh().seq == 2
    assert models.ids() == ["a"]
    assert reader.trouble is None


def test_a_past_that_could_not_be_read_is_made_up_for(service: Any) -> None:
    report(service, "a", "b")
    models = FakeModels()
    reader = Feed(service.store, models, service.settings)
    rename(service, "taut_changes", "gone")

    assert reader.past("pai") == []
    assert models.ids() == []

    rename(service, "gone", "taut_changes")
    reader.poll()
    assert models.ids() == ["a", "b"]


def test_a_history_that_refuses_stops_nothing_that_comes_after(service: Any) -> None:
    class Refusing(FakeModels):
        def learn(self, runs: Sequence[EndedRun]) -> None:
            if any(run.job_id == "bad" for run in runs):
                raise ContractError("not mine")
            super().learn(runs)

    models = Refusing()
    reader = Feed(service.store, models, service.settings)
    report(service, "bad")
    assert reader.poll() == 1
    report(service, "good")

    assert reader.poll() == 1
    assert models.ids() == ["good"]


def test_a_brake_is_not_written_over_what_was_decided_since(service: Any) -> None:
    kills = [row(f"k{i}", outcome="oom", allocation={"mem_gib": 5.0}) for i in range(4)]
    service.take_feedback(body(kills), ACCOUNTING)
    seq = service.store.seq()
    brake = Brake(trace="pai", cluster="pai", task_type="ctr", group="g0", why="kills", at=1.0)

    again = write_brake(service.store, brake, seen=seq - 1)
    elsewhere = write_brake(service.store, replace(brake, cluster="west"), seen=seq - 1)
    of_all = write_brake(service.store, replace(brake, group=""), seen=seq - 1)
    service.set_mode(ModeBody(reset=True, group="g1"), ANYONE)
    others = write_brake(service.store, replace(brake, group="g2"), seen=seq)
    service.set_mode(ModeBody(reset=True), ANYONE)
    late = write_brake(service.store, brake, seen=seq)
    anew = write_brake(service.store, brake, seen=service.store.seq())

    assert (again, elsewhere, of_all, others, late, anew) == (False, True, True, True, False, True)
    assert service.store.seq() == seq + 6
