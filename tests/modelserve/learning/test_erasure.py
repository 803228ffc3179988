"""Erasure: a user's rows and answers go, every worker forgets, and what their jobs taught goes with them."""

import math
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from modelserve.callers import ANYONE, Caller
from modelserve.errors import BadRequest, Forbidden
from modelserve.scopes import Scope
from modelserve.store.answers import AnswerRecord, newest_answers, write_answers
from modelserve.store.finished import newest_finished
from tests.modelserve.feedback_cases import ACCOUNTING, NOW, answer_record, body, context_of, row

Serve = Callable[..., Any]
EAST = Caller(name="east", scopes=frozenset({Scope.ADMIN}), traces=frozenset({"pai"}), clusters=frozenset({"east"}))


def answered(answer_id: str, *jobs: dict[str, str], trace: str = "pai") -> AnswerRecord:
    return answer_record(answer_id, trace=trace, context=context_of(*({"job_id": "a", **job} for job in jobs)))


def jobs_left(service: Any) -> list[str]:
    return [each.job_id for each in newest_finished(service.store, limit=100)]


def answers_left(service: Any) -> list[str]:
    return sorted(each.answer_id for each in newest_answers(service.store))


def test_a_users_jobs_go_and_every_worker_forgets(service: Any, serve: Serve) -> None:
    other = serve()
    rows = [row("a", user="u1"), row("b", user="u2"), row("c", user="u1", trace="philly"), row("d", user=None)]
    service.take_feedback(body(rows), ACCOUNTING)
    other.feed.poll()

    answer = service.erase_user(ANYONE, "pai", "u1")

    assert (answer.feedback, answer.clusters) == (1, None)
    assert jobs_left(service) == ["b", "c", "d"]
    assert sorted(service.models.ids()) == ["b", "c", "d"]
    assert other.feed.poll() == 1
    assert other.models.forgotten == [("pai", "u1", None)]
    assert sorted(other.models.ids()) == ["b", "c", "d"]


def test_models_loaded_later_are_told_whom_to_forget(service: Any, serve: Serve) -> None:
    service.erase_user(ANYONE, "pai", "u1", cluster="west")

    again = serve()
    marks = {
        (mark.user, mark.cluster, mark.before_us) for each in (service, again) for mark in each.feed.tombstones("pai")
    }

    assert marks == {("u1", "west", round(NOW * 1e6))}
    assert again.feed.tombstones("philly") == ()


def test_what_comes_later_is_learnt_again(service: Any) -> None:
    service.take_feedback(body([row("a")]), ACCOUNTING)
    service.erase_user(ANYONE, "pai", "u1")

    [result] = service.take_feedback(body([row("later")]), ACCOUNTING).results

    assert result.status == "accepted"
    assert service.models.ids() == ["later"]


def test_a_floor_goes_with_the_jobs_that_raised_it_as_does_a_brake_on_the_user_and_one_on_a_group_stands(
    service: Any, serve: Serve
) -> None:
    other = serve()
    kills = [row(f"k{i}", outcome="oom", group=f"g{i % 3}", allocation={"mem_gib": 10.0}) for i in range(7)]
    theirs = row("x", user="u2", group="g9", outcome="oom", allocation={"mem_gib": 7.0})
    service.take_feedback(body([*kills, theirs]), ACCOUNTING)
    assert service.feed.learned.braked("pai", "ctr", "pai", None, "u1") is not None

    service.erase_user(ANYONE, "pai", "u1")
    other.feed.poll()

    for each in (service, other, serve()):
        learned = each.feed.learned
        assert math.isnan(learned.memory_floor_gib("pai", "pai", "g0", "worker"))
        assert learned.memory_floor_gib("pai", "pai", "g9", "worker") == 20.0
        assert learned.braked("pai", "ctr", "pai", "g0") is not None
        assert learned.braked("pai", "ctr", "pai", None, "u1") is None
        each.store.close()


def test_answers_that_name_the_user_go_whole(service: Any) -> None:
    write_answers(
        service.store,
        [
            answered("theirs", {"user": "ü1", "cluster": "east"}),
            answered("among others", {"user": "u2"}, {"user": "ü1"}),
            answered("elsewhere", {"user": "ü1", "trace": "philly"}),
            answered("of another trace", {"user": "ü1"}, trace="philly"),
            answered("a namesake", {"group": "ü1"}),
            answered("longer", {"user": "ü11"}),
        ],
    )

    answer = service.erase_user(ANYONE, "pai", "ü1")

    assert answer.answers == 2
    assert answers_left(service) == ["a namesake", "elsewhere", "longer", "of another trace"]


def test_answers_that_still_wait_in_any_worker_go_as_well(service: Any, serve: Serve) -> None:
    other = serve()
    service.log.put(replace(answered("own", {"user": "u1"}), at=NOW - 1))
    other.log.put(replace(answered("theirs", {"user": "u1"}), at=NOW - 1))
    other.log.put(replace(answered("someone else's", {"user": "u2"}), at=NOW - 1))

    answer = service.erase_user(ANYONE, "pai", "u1")
    other.feed.poll()
    other.log.put(replace(answered("at work until now", {"user": "u1"}), at=NOW - 1))
    other.log.put(replace(answered("asked since", {"user": "u1"}), at=NOW + 1))
    other.log.stop()

    assert answer.answers == 1
    assert answers_left(service) == ["asked since", "someone else's"]


def test_what_another_worker_wrote_before_it_heard_goes_when_it_hears(service: Any, serve: Serve) -> None:
    other = serve()
    service.erase_user(ANYONE, "pai", "u1")
    other.log.put(replace(answered("late", {"user": "u1"}), at=NOW - 1))
    other.log.flush()
    assert answers_left(service) == ["late"]

    other.feed.poll()

    assert answers_left(service) == []


def test_a_name_is_found_however_it_was_written(service: Any) -> None:
    escaped = replace(answered("escaped"), context=b'{"body": {"jobs": [{"job_id": "a", "user": "\\u0075\\u00fc"}]}}')
    unreadable = replace(answered("unreadable"), context='no JSON, "uü"'.encode())
    write_answers(service.store, [escaped, unreadable, answered("another's", {"user": "u\\ü"})])

    assert service.erase_user(ANYONE, "pai", "uü").answers == 2
    assert answers_left(service) == ["another's"]


def test_a_tenant_erases_within_its_clusters_only(service: Any) -> None:
    service.take_feedback(body([row("mine", cluster="east"), row("theirs", cluster="west")]), ACCOUNTING)
    write_answers(
        service.store,
        [answered("mine", {"user": "u1", "cluster": "east"}), answered("theirs", {"user": "u1", "cluster": "west"})],
    )

    answer = service.erase_user(EAST, "pai", "u1")

    assert (answer.clusters, answer.feedback, answer.answers) == (("east",), 1, 1)
    assert jobs_left(service) == ["theirs"]
    assert answers_left(service) == ["theirs"]
    assert service.models.ids() == ["theirs"]


@pytest.mark.parametrize(("trace", "cluster"), [("pai", "west"), ("philly", None), ("philly", "east")])
def test_what_is_out_of_reach_stays(service: Any, trace: str, cluster: str | None) -> None:
    with pytest.raises(Forbidden):
        service.erase_user(EAST, trace, "u1", cluster)

    assert service.store.seq() == 0


def test_a_name_that_no_store_holds_is_refused(service: Any) -> None:
    with pytest.raises(BadRequest, match="NUL"):
        service.erase_user(ANYONE, "pai", "u\x00")
