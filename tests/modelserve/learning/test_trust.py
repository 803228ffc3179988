"""Who may teach: the accounting is believed, who asked only within bounds, and the reports of all others do nothing.

`test_no_forged_report_moves_another` draws 10 worlds; TAUT_WORLDS=10000 for more.
"""

import math
import os
import random
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from modelserve.callers import ANYONE, Caller
from modelserve.contract.feedback_rules import teachable_use
from modelserve.learning.learned import CALM_RUNS, DAY_S
from modelserve.scopes import Scope
from modelserve.store.finished import named_finished, newest_finished
from modelserve.store.store import CHANGES
from tests.modelserve.feedback_cases import (
    ABOUT,
    ACCOUNTING,
    JOB,
    NOW,
    answer_record,
    answered,
    body,
    context_of,
    row,
    service_of,
)

USER = Caller(name="user", scopes=frozenset({Scope.PREDICT, Scope.FEEDBACK}))
EVIL = Caller(name="evil", scopes=frozenset({Scope.PREDICT, Scope.FEEDBACK}))
WORLDS = int(os.environ.get("TAUT_WORLDS", "10"))
GROUPS = ("g0", "g1", "g2")


def told(service: Any, rows: list[dict[str, Any]], caller: Caller = EVIL) -> list[tuple[str, str | None]]:
    return [(each.status, each.trust) for each in service.take_feedback(body(rows), caller).results]


def killed(job_id: str, **changes: Any) -> dict[str, Any]:
    return row(job_id, outcome="oom", allocation={"mem_gib": 10.0}, **changes)


def used(job_id: str, gib: float, **changes: Any) -> dict[str, Any]:
    return row(job_id, used={"mem_max_gib": gib}, **changes)


def floor(service: Any, group: str = "g0") -> float:
    return float(service.feed.learned.memory_floor_gib("pai", "pai", group, "worker"))


def stored(service: Any, *columns: str) -> list[tuple[Any, ...]]:
    with service.store.reading("all reports") as connection:
        found = connection.execute(CHANGES.select().where(CHANGES.c.job_id.is_not(None)).order_by(CHANGES.c.seq))
        return [tuple(each._mapping[name] for name in columns) for each in found]


@pytest.mark.parametrize("caller", [ANYONE, EVIL, Caller(name="boss", scopes=frozenset({Scope.ADMIN}))])
def test_reports_without_an_answer_are_stored_and_shown_only(service: Any, caller: Caller) -> None:
    forged = [used(f"j{i}", 0.1, run_s=1.0, answer_id="made-up") for i in range(200)]

    assert set(told(service, [*forged, *(killed(f"k{i}", user=f"u{i}", group=f"g{i}") for i in range(9))], caller)) == {
        ("accepted", "shown")
    }
    learned = service.feed.learned
    assert (dict(learned.floors), dict(learned.brakes), service.models.runs) == ({}, {}, [])
    assert newest_finished(service.store, limit=9) == []
    assert service.read_modes(ANYONE).realised == ()
    assert len(stored(service, "job_id")) == 209


@pytest.mark.parametrize(
    ("changes", "trust"),
    [
        ({}, "bounded"),
        ({"answer_id": "without-cluster"}, "bounded"),
        ({"job_id": "b"}, "shown"),
        ({"group": "g9"}, "shown"),
        ({"user": "u9"}, "shown"),
        ({"role": "ps"}, "shown"),
        ({"cluster": "west"}, "shown"),
        ({"trace": "philly"}, "shown"),
        ({"answer_id": "of-another"}, "shown"),
    ],
)
def test_an_answer_is_bound_to_its_caller_and_job(service: Any, changes: dict[str, str], trust: str) -> None:
    mine, _ = answered(service, "mine", "a", caller="user"), answered(service, "of-another", "a", caller="evil")
    answered(service, "without-cluster", "a", caller="user", cluster=None)

    assert told(service, [{**row("a"), "answer_id": mine, **changes}], USER) == [("accepted", trust)]


def test_without_tokens_the_one_caller_is_believed_where_it_names_an_answer(service: Any) -> None:
    named = answered(service, "mine", "unknown yet")

    assert told(service, [row("a", answer_id=named), row("b")], ANYONE) == [
        ("accepted", "believed"),
        ("accepted", "shown"),
    ]


def test_who_asked_raises_a_floor_at_once_and_lowers_it_by_a_tenth_a_day(service: Any) -> None:
    named = answered(service, "all", "k", *(f"{number}-{i}" for number in range(3) for i in range(200)), caller="user")
    told(service, [killed("k", answer_id=named)], USER)
    assert floor(service) == 20.0

    for number, (days, left) in enumerate(((0.0, 18.0), (0.99, 18.0), (1.0, 16.2))):
        later = replace(service, clock=lambda at=NOW + days * DAY_S: at)
        told(later, [used(f"{number}-{i}", 1.0, answer_id=named) for i in range(200)], USER)
        assert floor(service) == pytest.approx(left)

    assert (service.models.runs, dict(service.feed.learned.brakes)) == ([], {})


def test_who_asked_lowers_no_floor_of_the_accounting(service: Any) -> None:
    told(service, [killed("k")], ACCOUNTING)
    named = answered(service, "all", *(f"d{i}" for i in range(CALM_RUNS)), caller="evil")
    told(service, [used(f"d{i}", 1.0, answer_id=named) for i in range(CALM_RUNS)])
    assert floor(service) == 20.0

    told(service, [used(f"t{i}", 1.0) for i in range(CALM_RUNS)], ACCOUNTING)
    assert math.isnan(floor(service))


@pytest.mark.parametrize("forged", [row("a"), killed("a"), row("a", run_s=1.0)], ids=["completed", "killed", "short"])
def test_no_report_stands_in_the_way_of_anothers_and_the_accounting_wins(service: Any, forged: dict[str, Any]) -> None:
    named = answered(service, "forged", "a", caller="evil")
    first = told(service, [forged, {**forged, "answer_id": named}]) + told(service, [forged], ANYONE)
    true = told(service, [killed("a", used={"mem_max_gib": 9.0})], ACCOUNTING)
    last = told(service, [row("a", run_s=2.0), row("a", run_s=3.0)], USER)

    assert first == [("accepted", "shown"), ("accepted", "bounded"), ("accepted", "shown")]
    assert true == [("accepted", "believed")]
    assert last == [("accepted", "shown"), ("conflict", None)]
    assert len(stored(service, "job_id")) == 5
    assert [(each.caller, each.outcome) for each in named_finished(service.store, {("pai", "a")})] == [("slurm", "oom")]
    assert [run.status for run in service.models.runs] == ["oom"]


def test_the_accounting_ends_a_floor_by_a_kill_that_it_denies(serve: Callable[..., Any]) -> None:
    service = serve()
    told(service, [killed("a", answer_id=answered(service, "forged", "a", caller="evil"))])
    assert floor(service) == 20.0

    told(service, [row("a")], ACCOUNTING)
    assert math.isnan(floor(service))
    assert math.isnan(floor(serve()))
    assert told(service, [killed("a", answer_id="forged", run_s=5.0)]) == [("conflict", None)]


@pytest.mark.parametrize("together", [True, False])
def test_a_kill_counts_although_its_reporter_said_otherwise_before(service: Any, together: bool) -> None:
    calls = [[row("a"), killed("a")]] if together else [[row("a")], [killed("a")]]

    assert [status for rows in calls for status, _ in told(service, rows, ACCOUNTING)] == ["accepted"] * 2
    assert [each.outcome for each in newest_finished(service.store, limit=9)] == ["completed", "oom"]
    assert floor(service) == 20.0
    again = told(service, [killed("a"), killed("a", run_s=9.0), row("a", run_s=9.0)], ACCOUNTING)
    assert [status for status, _ in again] == ["duplicate", "conflict", "conflict"]


def test_invented_completions_keep_no_brake_off_and_invented_kills_set_none(serve: Callable[..., Any]) -> None:
    service = serve(kill_limit_frac=0.1)
    invented = [f"{i}-{n}" for i in range(3) for n in range(100)]
    named = answered(service, "all", *invented, caller="evil")
    others = answered(service, "others", *(f"x{i}" for i in range(9)), caller="evil", group="g1", user="u2")

    told(service, [killed(f"x{i}", group="g1", user="u2", answer_id=others) for i in range(9)])
    assert dict(service.feed.learned.brakes) == {}
    for i in range(3):
        told(service, [row(f"{i}-{n}", allocation={"mem_gib": 10.0}, answer_id=named) for n in range(100)])
        told(service, [killed(f"k{i}")], ACCOUNTING)
    assert [stop.scope for stop in service.feed.learned.brakes.values()] == [("pai", "pai", "ctr", "", "g0")]


@pytest.mark.parametrize("count", [10, 50])
def test_invented_run_times_move_no_forecast(service: Any, count: int) -> None:
    told(service, [row("seed")], ACCOUNTING)
    before = list(service.models.runs), newest_finished(service.store, limit=99)
    named = answered(service, "all", *(f"r{i}" for i in range(count)), caller="evil")

    told(service, [row(f"r{i}", run_s=1.0, answer_id=named if i % 2 else None) for i in range(count)])

    assert (service.models.runs, newest_finished(service.store, limit=99)) == before


@pytest.mark.parametrize("factor", [1024.0, 1000.0, 1 / 1024])
def test_memory_in_other_units_than_its_prediction_teaches_nothing(factor: float) -> None:
    use = teachable_use(replace(JOB, mem_max_gib=9.0 * factor))

    assert (use.mem_max_gib, use.gpu_mem_max_gib, use.cpu_cores) == (None, None, 2.0)


def some_reports(rng: random.Random, at: str, count: int, groups: Sequence[str]) -> list[dict[str, Any]]:
    """Return reports of jobs of some groups, each with an id of its own or, in a forged one, that of an honest job."""
    found = []
    for i in range(count):
        group = rng.choice(groups)
        job_id = f"h{rng.randrange(40)}" if at == "f" and rng.random() < 0.4 else f"{at}{i}"
        ended = {"outcome": rng.choice(["completed", "completed", "oom", "failed"]), "run_s": 10 ** rng.uniform(0, 3)}
        given, peak = {"mem_gib": rng.choice([5.0, 10.0, 20.0])}, {"mem_max_gib": rng.uniform(0.01, 20.0)}
        found.append(row(job_id, group=group, user=f"u-{group}", **ended, allocation=given, used=peak))
    return found


def learnt(service: Any) -> tuple[Any, ...]:
    """Return what forged reports may not change: the brakes, the history, and what drift and training read."""
    brakes = {scope: (stop.why, stop.since) for scope, stop in service.feed.learned.brakes.items()}
    read = [replace(each, seq=0) for each in newest_finished(service.store, limit=999)]
    return brakes, service.models.runs, read


def test_no_forged_report_moves_another(tmp_path: Path) -> None:
    for seed in range(WORLDS):
        rng = random.Random(seed)
        alone, attacked = (service_of(tmp_path / f"{seed}-{name}.db", kill_limit_frac=0.1) for name in "ab")
        asked = rng.sample(GROUPS, rng.randint(0, 1))
        honest = some_reports(rng, "h", rng.randint(20, 40), GROUPS)
        forged = some_reports(rng, "f", rng.randint(20, 200), rng.choice([GROUPS, [*asked, "own"]]))
        about = [{name: each[name] for name in ABOUT if name in each} for each in forged if each["group"] in asked]
        attacked.log.put(answer_record("evil", kind="prediction", caller="evil", context=context_of(*about)))
        attacked.log.flush()
        forged = [{**each, "answer_id": rng.choice(["evil", "made-up", None])} for each in forged]
        accepted = 0
        while honest or forged:
            true, honest = honest[: rng.randint(0, 9)], honest[9:]
            lies, forged = forged[: rng.randint(0, 50)], forged[50:]
            for rows, caller, services in (
                (true, ACCOUNTING, (alone, attacked)),
                (lies, rng.choice([EVIL, EVIL, ANYONE]), (attacked,)),
            ):
                for service in services if rows else ():
                    taken = service.take_feedback(body(rows), caller)
                    accepted += taken.accepted if service is attacked else 0

        assert learnt(attacked) == learnt(alone)
        assert len(stored(attacked, "job_id")) == accepted
        for group in (*GROUPS, "own"):
            before, after = (np.nan_to_num(floor(service, group)) for service in (alone, attacked))
            assert after == before or (group in asked and after > before)
        for service in (alone, attacked):
            service.store.close()
