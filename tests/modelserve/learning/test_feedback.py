"""Feedback: checked whole, stored once, the first stands, learnt at once by all workers, and never another tenant's."""

import math
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import ValidationError

from modelserve.callers import Caller
from modelserve.errors import BadRequest, Forbidden
from modelserve.learning import feedback
from modelserve.scopes import Scope
from modelserve.store.finished import newest_finished
from tests.examples import examples
from tests.modelserve.feedback_cases import ACCOUNTING, FakeModels, answered, body, row, service_of

Serve = Callable[..., Any]
EAST = Caller(
    name="east", scopes=frozenset({Scope.ACCOUNTING}), traces=frozenset({"pai"}), clusters=frozenset({"east"})
)


def statuses(service: Any, rows: list[dict[str, Any]], caller: Caller = ACCOUNTING) -> list[str]:
    return [each.status for each in service.take_feedback(body(rows), caller).results]


def test_the_first_report_stands_and_repeats_say_so(serve: Serve) -> None:
    service = serve()

    first = service.take_feedback(body([row("a"), row("b"), row("a")]), ACCOUNTING)
    again = service.take_feedback(body([row("a"), row("b", outcome="failed"), row("c")]), ACCOUNTING)

    assert [(each.job_id, each.status) for each in first.results] == [
        ("a", "accepted"),
        ("b", "accepted"),
        ("a", "duplicate"),
    ]
    assert [each.status for each in again.results] == ["duplicate", "conflict", "accepted"]
    assert (again.accepted, again.duplicates, again.conflicts) == (1, 1, 1)
    stored = newest_finished(service.store, limit=10)
    assert [(each.job_id, each.outcome) for each in stored] == [
        ("a", "completed"),
        ("b", "completed"),
        ("c", "completed"),
    ]


def test_a_job_is_told_from_its_like_by_trace_cluster_and_role(serve: Serve) -> None:
    service = serve()

    answers = statuses(
        service, [row("a"), row("a", role="ps"), row("a", cluster="west"), row("a", trace="philly"), row("a")]
    )

    assert answers == ["accepted"] * 4 + ["duplicate"]


@settings(max_examples=examples(15))
@given(
    calls=st.lists(
        st.lists(st.tuples(st.sampled_from("abc"), st.sampled_from([60.0, 61.0])), min_size=1, max_size=6), max_size=5
    )
)
def test_any_repetition_leaves_one_row_of_each_job(tmp_path_factory: pytest.TempPathFactory, calls: Any) -> None:
    service = service_of(tmp_path_factory.mktemp("repeated") / "serve.db")
    first: dict[str, float] = {}

    for call in calls:
        expected = []
        for job_id, run_s in call:
            known = first.setdefault(job_id, run_s) if job_id in first else None
            expected.append("accepted" if known is None else "duplicate" if known == run_s else "conflict")
            first.setdefault(job_id, run_s)
        assert statuses(service, [row(job_id, run_s=run_s) for job_id, run_s in call]) == expected

    stored = {each.job_id: each.run_s for each in newest_finished(service.store, limit=100)}
    assert stored == first
    assert sorted(service.models.ids()) == sorted(first)
    service.store.close()


def test_a_report_sent_again_is_known_though_its_vc_has_moved(serve: Serve, monkeypatch: pytest.MonkeyPatch) -> None:
    service = serve()
    at = ["west"]
    monkeypatch.setattr(feedback, "_cluster_of_vc", lambda row, snapshot: at[0])
    said = row("a", cluster=None, vc="v")
    assert statuses(service, [said]) == ["accepted"]

    at[0] = "east"

    later = {"submit_ts": "2020-07-20T00:00:30Z"}
    assert statuses(service, [said, {**said, "outcome": "failed"}]) == ["duplicate", "conflict"]
    assert statuses(service, [{**said, **later}, {**said, "cluster": "east", **later}]) == ["accepted", "duplicate"]
    assert [each.cluster for each in newest_finished(service.store, limit=10)] == ["west", "east"]


@pytest.mark.parametrize(
    ("changes", "field"),
    [
        ({"end_ts": "2020-07-20T00:00:30Z"}, "feedback.0.end_ts"),
        ({"start_ts": "2020-07-19T00:00:00Z"}, "feedback.0.start_ts"),
        ({"submit_ts": "1950-01-01T00:00:00Z"}, "feedback.0.submit_ts"),
        ({"submit_ts": "2020-07-20T00:00:00"}, "feedback.0.submit_ts"),
        ({"start_ts": None}, "feedback.0.run_s"),
        ({"run_s": 5000.0}, "feedback.0.run_s"),
        ({"run_s": -1.0}, "feedback.0.run_s"),
        ({"allocation": {"mem_gib": -1.0}}, "feedback.0.allocation.mem_gib"),
        ({"used": {"mem_max_gib": "NaN"}}, "feedback.0.used.mem_max_gib"),
        ({"outcome": "exploded"}, "feedback.0.outcome"),
        ({"user": "u\x00"}, "feedback.0.user"),
        ({"instances": 0}, "feedback.0.instances"),
    ],
)
def test_what_cannot_be_is_refused_by_its_field(changes: dict[str, Any], field: str) -> None:
    with pytest.raises(ValidationError) as refused:
        body([row(**changes)])

    fault = refused.value.errors()[0]
    # A check of several fields is of the whole row: its message begins with the field.
    of_row = [fault["msg"].removeprefix("Value error, ").partition(":")[0]] if len(fault["loc"]) == 2 else []
    assert ".".join(map(str, [*fault["loc"], *of_row])) == field


@pytest.mark.parametrize("rows", [[], [row()] * 10_001], ids=["none", "too many"])
def test_a_call_holds_one_to_ten_thousand_rows(rows: list[dict[str, Any]]) -> None:
    with pytest.raises(ValidationError, match="feedback"):
        body(rows)


def test_a_job_that_ends_tomorrow_has_not_finished(serve: Serve) -> None:
    late = row("b", end_ts="2020-09-15T00:00:00Z")

    with pytest.raises(BadRequest, match=r"feedback\.1\.end_ts"):
        statuses(serve(), [row("a"), late])


def test_without_a_trace_nothing_is_guessed(serve: Serve) -> None:
    with pytest.raises(BadRequest, match=r"feedback\.0\.trace"):
        statuses(serve(trace=None), [row("a")])


def test_one_row_out_of_reach_stores_none(serve: Serve) -> None:
    service = serve()

    with pytest.raises(Forbidden, match=r"feedback\.1\.cluster"):
        statuses(service, [row("a", cluster="east"), row("b", cluster="west")], EAST)

    assert newest_finished(service.store, limit=10) == []
    assert statuses(service, [row("a", cluster="east")], EAST) == ["accepted"]


def test_own_feedback_is_learnt_at_once_and_others_with_the_next_look(serve: Serve) -> None:
    mine, other = serve(), serve()

    answered(mine, "three", jobs=3)

    statuses(mine, [row(name, used={"mem_max_gib": 8.0}, answer_id="three") for name in "cba"])

    assert mine.models.ids() == ["c", "b", "a"]
    assert other.models.ids() == []
    assert other.feed.poll() == 3
    assert other.models.ids() == ["c", "b", "a"]
    learnt = other.models.runs[-1]
    assert (learnt.mem_max_gib, learnt.measured, learnt.run_s, learnt.status) == (8.0, True, 3600.0, "completed")
    assert math.isnan(learnt.used_gpus)


def test_an_allocation_takes_the_request_where_it_says_nothing(serve: Serve) -> None:
    service = serve()

    statuses(service, [row("a", allocation={"mem_gib": 10.0}), row("b")])

    a, b = newest_finished(service.store, limit=10)
    assert (a.alloc_cpu_cores, a.alloc_mem_gib, a.alloc_gpus) == (6.0, 10.0, 0.5)
    assert (b.alloc_cpu_cores, b.alloc_mem_gib, b.alloc_gpus) == (6.0, 20.0, 0.5)


def test_everything_survives_a_restart(serve: Serve) -> None:
    rows = [row(f"k{i}", outcome="oom", allocation={"mem_gib": 10.0}) for i in range(3)]
    statuses(serve(), rows)

    again = serve(models=FakeModels())

    assert again.feed.learned.braked("pai", "ctr", "pai", "g0") is not None
    assert again.feed.learned.memory_floor_gib("pai", "pai", "g0", "worker") == 20.0
    assert [run.job_id for run in again.feed.past("pai")] == ["k0", "k1", "k2"]
    assert again.models.ids() == []


def test_two_tenants_never_see_each_other(serve: Serve) -> None:
    service = serve(kill_least=1)

    statuses(service, [row("a", cluster="east", outcome="oom", allocation={"mem_gib": 10.0})], EAST)

    learned = service.feed.learned
    assert learned.braked("pai", "ctr", "east") is not None
    assert learned.braked("pai", "ctr", "west") is None
    assert math.isnan(learned.memory_floor_gib("pai", "west", "g0", "worker", "u1"))
    assert [run.cluster for run in service.models.runs] == ["east"]
