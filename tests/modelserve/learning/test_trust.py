"""Trust in reports: which may lower predictions, whose units are in doubt, and that forged ones lower no target."""

import random
from dataclasses import replace
from typing import Any

import pytest

from modelserve.callers import ANYONE, Caller
from modelserve.contract.feedback_rules import teachable_use
from modelserve.errors import Forbidden
from modelserve.learning.learned import CALM_RUNS
from modelserve.learning.trust import LEAST
from modelserve.scopes import Scope
from modelserve.store.finished import newest_finished
from tests.modelserve.feedback_cases import answered, body, row

ACCOUNTING = Caller(name="slurm", scopes=frozenset({Scope.ACCOUNTING}))


def trusts(service: Any, rows: list[dict[str, Any]], caller: Caller = ANYONE) -> list[str | None]:
    return [each.trust for each in service.take_feedback(body(rows), caller).results]


def used(job_id: str, gib: float, answer_id: str | None = None, **changes: Any) -> dict[str, Any]:
    return row(job_id, answer_id=answer_id, used={"mem_max_gib": gib}, **changes)


def honest(service: Any, count: int, at: str = "h") -> list[dict[str, Any]]:
    rng = random.Random(count)
    return [
        used(f"{at}{i}", round(rng.uniform(14.0, 18.0), 2), answered(service, f"{at}-answer-{i}")) for i in range(count)
    ]


def test_a_report_is_tied_by_an_answer_about_its_group_and_user_as_often_as_it_has_jobs(service: Any) -> None:
    two = answered(service, "two", jobs=2)
    answered(service, "theirs", group="g9")
    reports = [used(f"j{i}", 16.0, two) for i in range(3)]
    others = [used("k", 16.0, "theirs"), used("l", 16.0, "made-up"), used("m", 16.0), used("n", 16.0, two, user="u9")]

    assert trusts(service, reports + others) == ["unconfirmed"] * 2 + ["untied"] * 5
    assert trusts(service, [used("again", 16.0, two)]) == ["untied"]


def test_reports_that_agree_with_enough_others_are_confirmed(service: Any) -> None:
    found = trusts(service, honest(service, 40))

    assert found[: LEAST - 1] == ["unconfirmed"] * (LEAST - 1)
    assert found.count("confirmed") > 30


def test_a_fifth_of_forged_reports_confirms_none_of_them(service: Any) -> None:
    for number in range(150):
        lie = number % 5 == 4
        report = used(f"j{number}", 1.0 if lie else 16.0, answered(service, f"a{number}"))
        [trust] = trusts(service, [report])
        assert trust == ("unconfirmed" if lie or number < LEAST - 1 else "confirmed")
    assert {run.mem_max_gib for run in service.models.runs if run.measured} == {16.0}


@pytest.mark.parametrize("factor", [1024.0, 1000.0, 1 / 1024])
def test_memory_in_other_units_is_quarantined_and_teaches_nothing(service: Any, factor: float) -> None:
    trusts(service, honest(service, 5))

    assert trusts(service, [used("off", 16.0 * factor, answered(service, "off"))]) == ["quarantined"]
    [stored] = [each for each in newest_finished(service.store, limit=9) if each.job_id == "off"]
    assert teachable_use(stored).mem_max_gib is None


def test_a_report_that_is_not_confirmed_only_raises(service: Any) -> None:
    trusts(service, [used("a", 8.0)])
    [stored] = newest_finished(service.store, limit=1)

    assert stored.trust == "untied"
    assert teachable_use(replace(stored, peak_mem_gib=9.0)).mem_max_gib is None
    assert teachable_use(replace(stored, peak_mem_gib=7.0)).mem_max_gib == 8.0


def test_a_floor_does_not_fall_by_reports_without_an_answer(service: Any) -> None:
    trusts(service, [row("killed", outcome="oom", allocation={"mem_gib": 10.0})])
    floor = service.feed.learned.memory_floor_gib("pai", "pai", "g0", "worker")

    trusts(service, [used(f"calm{i}", 5.0) for i in range(CALM_RUNS + 1)])
    assert service.feed.learned.memory_floor_gib("pai", "pai", "g0", "worker") == floor == 20.0

    trusts(service, [used(f"true{i}", 5.0, answered(service, f"b{i}")) for i in range(CALM_RUNS + 10)])
    assert not service.feed.learned.memory_floor_gib("pai", "pai", "g0", "worker") > 0.0


@pytest.mark.parametrize("together", [True, False])
def test_a_kill_counts_although_its_job_was_reported_before(service: Any, together: bool) -> None:
    before, killed = row("a"), row("a", outcome="oom", allocation={"mem_gib": 10.0})
    calls = [[before, killed]] if together else [[before], [killed]]

    said = [each.status for rows in calls for each in service.take_feedback(body(rows), ANYONE).results]

    assert said == (["conflict", "accepted"] if together else ["accepted", "accepted"])
    assert [each.outcome for each in newest_finished(service.store, limit=9)] == ["oom"]
    assert service.feed.learned.memory_floor_gib("pai", "pai", "g0", "worker") == 20.0
    again = service.take_feedback(body([killed, {**killed, "run_s": 9.0}, before]), ANYONE)
    assert [each.status for each in again.results] == ["duplicate", "conflict", "conflict"]


def test_a_burst_of_forged_reports_after_honest_ones_removes_no_floor(service: Any) -> None:
    trusts(service, honest(service, 80))
    trusts(service, [row("killed", outcome="oom", allocation={"mem_gib": 10.0})])
    trusts(service, [used(f"lie{i}", 1.0, answered(service, f"l{i}")) for i in range(CALM_RUNS)])

    assert service.feed.learned.memory_floor_gib("pai", "pai", "g0", "worker") == 20.0


def test_reports_without_an_answer_stand_against_forged_ones_with_an_answer(service: Any) -> None:
    trusts(service, [used(f"true{i}", 16.0) for i in range(80)])
    found = trusts(service, [used(f"lie{i}", 1.0, answered(service, f"l{i}")) for i in range(20)])

    assert set(found) == {"unconfirmed"}
    assert trusts(service, [used("high", 17.0, answered(service, "high"))]) == ["confirmed"]


def test_reports_of_the_clusters_own_accounting_are_believed_at_once(service: Any) -> None:
    trusts(service, honest(service, 30))
    trusts(service, [row("killed", outcome="oom", allocation={"mem_gib": 10.0})])
    measured = len([run for run in service.models.runs if run.measured])

    assert set(trusts(service, [used(f"low{i}", 4.0) for i in range(CALM_RUNS)], ACCOUNTING)) == {"confirmed"}

    assert len([run for run in service.models.runs if run.measured]) == measured + CALM_RUNS
    assert not service.feed.learned.memory_floor_gib("pai", "pai", "g0", "worker") > 0.0


def test_accounting_in_other_units_is_quarantined_too(service: Any) -> None:
    trusts(service, honest(service, 5), ACCOUNTING)

    assert trusts(service, [used("off", 16.0 * 1024.0)], ACCOUNTING) == ["quarantined"]


@pytest.mark.parametrize("caller", [ANYONE, Caller(name="boss", scopes=frozenset({Scope.ADMIN}))])
def test_no_other_scope_is_believed(service: Any, caller: Caller) -> None:
    assert trusts(service, [used("a", 1.0)], caller) == ["untied"]


def test_accounting_of_one_cluster_is_refused_for_another(service: Any) -> None:
    west = ACCOUNTING.model_copy(update={"clusters": frozenset({"west"})})

    with pytest.raises(Forbidden, match="within the token's reach: west"):
        trusts(service, [used("a", 1.0)], west)
    assert trusts(service, [used("a", 1.0, cluster="west")], west) == ["confirmed"]
