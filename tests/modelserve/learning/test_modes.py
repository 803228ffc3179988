"""Modes: set within reach, seen within reach, and what was realised, worked out by hand."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
from pydantic import ValidationError

from modelserve.callers import ANYONE, Caller
from modelserve.contract.requests import ModeBody
from modelserve.errors import BadRequest, Forbidden
from modelserve.learning.modes import NO_BRAKE
from modelserve.scopes import Scope
from modelserve.store.finished import newest_finished
from tests.modelserve.feedback_cases import ACCOUNTING, NO_MODELS, FakeModels, body, row

Serve = Callable[..., Any]
EAST = Caller(name="east", scopes=frozenset({Scope.ADMIN}), traces=frozenset({"pai"}), clusters=frozenset({"east"}))


@pytest.mark.parametrize(
    "said",
    [
        {},
        {"mode": None},
        {"mode": "observe", "reset": True},
        {"unset": True, "reset": True},
        {"mode": "observe", "unset": True},
        {"mode": "off"},
        {"reset": False},
        {"unset": False},
        {"reset": True, "group": "g", "user": "u"},
        {"mode": "observe", "user": "u"},
    ],
)
def test_one_thing_is_asked_of_a_mode(said: dict[str, Any]) -> None:
    with pytest.raises(ValidationError):
        ModeBody.model_validate(said)


def test_a_mode_that_was_set_is_shown_and_holds_in_other_workers(service: Any, serve: Serve) -> None:
    other = serve()

    answer = service.set_mode(ModeBody(task_type="ctr", mode="enforce"), ANYONE)

    assert [(m.trace, m.cluster, m.task_type, m.group, m.mode) for m in answer.modes] == [
        ("pai", None, "ctr", None, "enforce")
    ]
    assert answer.default == "observe"
    assert other.feed.fresh().mode("pai", "ctr", "g1") == "enforce"


@pytest.mark.parametrize(
    ("said", "note"),
    [
        ({"trace": "typo", "mode": "enforce"}, "no model serves the trace typo now"),
        ({"task_type": "crt", "mode": "enforce"}, "no model serves the task type crt of the trace pai now"),
        ({"task_type": "ctr", "mode": "enforce"}, None),
        ({"trace": "pai", "cluster": "new", "mode": "enforce"}, None),
        ({"trace": "typo", "unset": True}, None),
        ({"trace": "typo", "reset": True}, NO_BRAKE),
    ],
)
def test_a_mode_that_no_model_serves_is_set_and_noted(serve: Serve, said: dict[str, Any], note: str | None) -> None:
    champions = {"runtime.pai.ctr": object(), "usage.pai.ctr": object()}
    service = serve(FakeModels(current=replace(NO_MODELS, champions=champions)))

    answer = service.set_mode(ModeBody(**said), ANYONE)

    assert answer.note == note
    assert [each.mode for each in answer.modes] == ([said["mode"]] if "mode" in said else [])


def test_a_mode_that_is_taken_back_leaves_the_wider_one(service: Any, serve: Serve) -> None:
    other = serve()
    service.set_mode(ModeBody(trace="pai", mode="enforce"), ANYONE)
    service.set_mode(ModeBody(task_type="ctr", mode="observe"), ANYONE)

    answer = service.set_mode(ModeBody(task_type="ctr", unset=True), ANYONE)
    again = service.set_mode(ModeBody(task_type="ctr", unset=True), ANYONE)

    assert [(m.task_type, m.mode) for m in answer.replaced] == [("ctr", "observe")]
    assert [(m.task_type, m.mode) for m in answer.modes] == [(None, "enforce")]
    assert again.replaced == ()
    assert other.feed.fresh().mode("pai", "ctr", "g1") == "enforce"
    anew = serve()
    assert anew.feed.learned.mode("pai", "ctr", "g1") == "enforce"


def test_who_is_bound_to_clusters_sets_no_mode_for_all(service: Any) -> None:
    with pytest.raises(Forbidden, match=r"mode\.cluster"):
        service.set_mode(ModeBody(mode="enforce"), EAST)
    with pytest.raises(Forbidden, match=r"mode\.trace"):
        service.set_mode(ModeBody(trace="philly", cluster="east", mode="enforce"), EAST)

    answer = service.set_mode(ModeBody(cluster="east", mode="enforce"), EAST)

    assert [each.cluster for each in answer.modes] == ["east"]
    assert service.feed.learned.mode("pai", "ctr", None, "west") == "observe"


def test_without_a_trace_no_mode_is_set(serve: Serve) -> None:
    with pytest.raises(BadRequest, match="trace"):
        serve(trace=None).set_mode(ModeBody(mode="enforce"), ANYONE)


def test_what_was_realised_is_what_the_jobs_say(service: Any) -> None:
    rows = [
        row("whole"),
        row("shrunk", allocation={"mem_gib": 10.0, "gpus": 0.25}),
        row("killed", allocation={"mem_gib": 5.0}, outcome="oom"),
        row("own fault", outcome="oom"),
        row("west", cluster="west", task_type="nlp"),
    ]
    service.take_feedback(body(rows), ACCOUNTING)

    ctr, nlp = service.read_modes(ANYONE).realised

    assert (ctr.trace, ctr.task_type, ctr.jobs, ctr.shrunk_jobs, ctr.kills, ctr.kill_rate) == (
        *("pai", "ctr", 4, 2, 1),
        0.5,
    )
    # One hour, two instances: 4 jobs of 20 GiB asked, 20 + 10 + 5 + 20 GiB given.
    assert ctr.hours["mem_gib"].model_dump() == pytest.approx({"asked": 160.0, "allocated": 110.0, "saved": 50.0})
    assert ctr.hours["gpus"].saved == pytest.approx(0.5)
    assert ctr.hours["cpu_cores"].saved == pytest.approx(0.0)
    assert (nlp.task_type, nlp.jobs, nlp.shrunk_jobs, nlp.kill_rate) == ("nlp", 1, 0, None)


def test_tenants_see_their_own_jobs_brakes_and_modes(service: Any) -> None:
    kills = [row(f"k{i}", cluster="west", outcome="oom", allocation={"mem_gib": 5.0}) for i in range(3)]
    service.take_feedback(body([*kills, row("mine", cluster="east")]), ACCOUNTING)
    service.set_mode(ModeBody(cluster="west", mode="enforce"), ANYONE)
    service.set_mode(ModeBody(mode="observe"), ANYONE)

    east, everyone = service.read_modes(EAST), service.read_modes(ANYONE)

    assert [each.jobs for each in east.realised] == [1]
    assert east.brakes == ()
    assert [each.cluster for each in east.modes] == [None]
    assert [each.jobs for each in everyone.realised] == [4]
    assert [(each.cluster, each.task_type, each.group) for each in everyone.brakes] == [("west", "ctr", "g0")]


def test_a_reset_releases_the_brake_everywhere_and_for_good(service: Any, serve: Serve) -> None:
    other = serve()
    kills = [row(f"k{i}", outcome="oom", allocation={"mem_gib": 5.0}) for i in range(3)]
    service.take_feedback(body(kills), ACCOUNTING)
    other.feed.poll()
    assert other.feed.learned.braked("pai", "ctr", group="g0") is not None

    wrong = service.set_mode(ModeBody(task_type="ctr", group="g1", reset=True), ANYONE)
    answer = service.set_mode(ModeBody(task_type="ctr", group="g0", reset=True), ANYONE)

    assert wrong.released == ()

    assert answer.brakes == ()
    assert [(each.cluster, each.task_type, each.group) for each in answer.released] == [("pai", "ctr", "g0")]
    assert other.feed.fresh().braked("pai", "ctr", group="g0") is None
    again = serve()
    assert again.feed.learned.braked("pai", "ctr", group="g0") is None


def test_a_brake_says_since_when_in_every_worker(service: Any, serve: Serve) -> None:
    kills = [row(f"k{i}", outcome="oom", allocation={"mem_gib": 5.0}) for i in range(3)]
    taken = service.take_feedback(body(kills), ACCOUNTING)
    assert [(each.group, each.user) for each in taken.brakes] == [("g0", None)]
    reported = newest_finished(service.store, limit=1)[0].at
    anew = serve()

    found = [each.read_modes(ANYONE).brakes[0].since.timestamp() for each in (service, anew)]

    assert found == pytest.approx([reported] * 2, abs=1e-3)


def test_a_reset_that_releases_nothing_says_so(service: Any) -> None:
    kills = [row(f"k{i}", outcome="oom", allocation={"mem_gib": 5.0}) for i in range(3)]
    service.take_feedback(body(kills), ACCOUNTING)

    answer = service.set_mode(ModeBody(task_type="crt", reset=True), ANYONE)

    assert answer.released == ()
    assert [each.task_type for each in answer.brakes] == ["ctr"]


def test_enforce_without_a_scope_is_refused_and_observe_is_not(service: Any) -> None:
    from modelserve.learning.modes import set_mode

    def set_to(**said: Any) -> Any:
        asked = ModeBody(**said)
        return set_mode(service.store, service.feed, asked, ANYONE, champions=(), default_trace="pai", at=1.0)

    with pytest.raises(BadRequest, match=r"enforce without a scope, which covers every job of pai"):
        set_to(mode="enforce")
    assert set_to(mode="observe").modes[0].mode == "observe"
    assert set_to(mode="enforce", trace="pai").modes[0].mode == "enforce"
    assert set_to(mode="enforce", task_type="ctr").modes
