"""State learnt from feedback: when floors rise and fall, when shrinking stops, which mode holds."""

import math
from dataclasses import replace

import pytest

from modelserve.learning.learned import CALM_RUNS, OOM_MARGIN, FeedbackState, Learned, Stop
from modelserve.settings import ServeSettings
from modelserve.store.changes import Brake, ModeSet, Reset
from modelserve.store.finished import Finished
from tests.modelserve.feedback_cases import JOB

SETTINGS = ServeSettings(kill_limit_frac=0.1, kill_window=20, kill_least=3)

SHRUNK = replace(JOB, alloc_mem_gib=10.0)
KILLED = replace(SHRUNK, outcome="oom", mem_max_gib=None)


def taught(*rows: Finished) -> Learned:
    state = FeedbackState(settings=SETTINGS)
    for row in rows:
        state.apply(row)
    return state.frozen()


def floor_of(learned: Learned, cluster: str | None = "east", group: str | None = "g3", role: str = "worker") -> float:
    return learned.memory_floor_gib("pai", cluster, group, role, "u7")


def test_a_kill_raises_the_floor_of_the_like_at_once() -> None:
    learned = taught(KILLED)

    assert floor_of(learned) == 20.0  # what it asked for
    assert floor_of(learned, cluster=None) == 20.0
    assert math.isnan(floor_of(learned, cluster="west"))
    assert math.isnan(floor_of(learned, group="g4"))
    assert math.isnan(floor_of(learned, role="ps"))
    assert math.isnan(learned.memory_floor_gib("philly", "east", "g3", "worker"))


def test_a_kill_of_an_unshrunk_job_asks_for_more_than_it_had() -> None:
    assert floor_of(taught(replace(JOB, outcome="oom"))) == pytest.approx(20.0 * OOM_MARGIN)


def test_jobs_without_a_group_are_alike_by_user() -> None:
    learned = taught(replace(KILLED, group=None))

    assert floor_of(learned, group=None) == 20.0
    assert math.isnan(floor_of(learned))


def test_the_highest_kill_stands() -> None:
    learned = taught(KILLED, replace(KILLED, alloc_mem_gib=18.0), replace(KILLED, alloc_mem_gib=11.0))

    assert floor_of(learned) == pytest.approx(18.0 * OOM_MARGIN)


def test_a_floor_falls_after_enough_calm_runs_in_a_row() -> None:
    calm = replace(JOB, mem_max_gib=5.0)

    assert floor_of(taught(KILLED, *[calm] * (CALM_RUNS - 1))) == 20.0
    assert math.isnan(floor_of(taught(KILLED, *[calm] * CALM_RUNS)))
    high = replace(JOB, mem_max_gib=10.5)
    assert floor_of(taught(KILLED, *[calm] * 15, high, *[calm] * 15)) == 20.0


def test_shrunk_or_unmeasured_runs_lower_no_floor() -> None:
    shrunk, unmeasured = replace(SHRUNK, mem_max_gib=5.0), replace(JOB, mem_max_gib=None)

    assert floor_of(taught(KILLED, *[shrunk, unmeasured] * CALM_RUNS)) == 20.0


def braked(learned: Learned, group: str | None = "g3", user: str | None = "u7", cluster: str | None = "east") -> bool:
    return learned.braked("pai", "ctr", cluster, group, user) is not None


def in_turn(*rows: Finished) -> Learned:
    return taught(*(replace(row, job_id=f"j{place}") for place, row in enumerate(rows)))


def test_harm_to_a_group_stops_the_group_until_it_is_released() -> None:
    state = FeedbackState(settings=SETTINGS)
    for place, row in enumerate((KILLED, *[SHRUNK] * 5, KILLED, replace(KILLED, at=60.0))):
        state.apply(replace(row, job_id=f"j{place}"))
    learned = state.frozen()

    stop = str(learned.braked("pai", "ctr", "east", "g3"))
    assert "3 of the last 8 shrunk jobs came to harm (3 killed for memory)" in stop
    assert "since 1970-01-01T00:01:00Z" in stop
    assert not braked(learned, group="g4")
    assert not braked(learned, cluster="west")
    assert braked(learned, cluster=None)
    assert learned.braked("pai", "nlp", "east", "g3", "u7") is None

    state.apply(Reset(trace="pai", cluster="", task_type="ctr", group="g4", caller="operator", at=2.0))
    assert braked(state.frozen())
    state.apply(Reset(trace="pai", cluster="", task_type="ctr", group="g3", caller="operator", at=2.0))
    assert not braked(state.frozen())
    state.apply(KILLED)
    assert not braked(state.frozen())


def harmed(*owners: tuple[str, str | None], each: int = 1) -> Learned:
    return in_turn(*(replace(KILLED, user=user, group=group) for user, group in owners for _ in range(each)))


def test_three_groups_stop_their_user_and_three_users_their_type() -> None:
    two = harmed(("u7", "g1"), ("u7", "g2"), each=2)
    three = harmed(("u7", "g1"), ("u7", "g2"), ("u7", "g3"))
    users = harmed(("u1", "a"), ("u2", "b"), ("u3", "c"))
    alone = harmed(("u7", None), each=3)

    assert not braked(two, group="g1")
    assert [braked(three, group=name) for name in ("g1", "g9")] == [True, True]
    assert not braked(three, user="u8", group="g8")
    assert braked(users, user="u8", group="g8")
    assert braked(alone, group=None)
    assert not braked(alone, user="u8", group=None)


def ran(outcome: str = "completed", run_s: float = 90.0) -> Finished:
    return replace(JOB, outcome=outcome, run_s=run_s, p90_s=100.0)


@pytest.mark.parametrize(
    ("harm", "stops"),
    [
        (ran("failed", 2.0), True),
        (ran("failed", 500.0), False),
        (ran("timeout"), True),
        (ran(run_s=301.0), True),
        (ran(run_s=299.0), False),
        (ran("cancelled", 2.0), False),
    ],
)
@pytest.mark.parametrize("resource", ["alloc_cpu_cores", "alloc_gpus", "alloc_mem_gib"])
def test_jobs_that_break_or_run_long_count_where_those_with_all_cpus_do_not(
    harm: Finished, stops: bool, resource: str
) -> None:
    three = [replace(harm, **{resource: 0.1})] * 3
    counts = stops and resource != "alloc_mem_gib"

    assert braked(in_turn(*[ran()] * 3, *three)) is counts
    assert not braked(in_turn(*[ran()] * 2, *three))  # too few to compare with
    assert not braked(in_turn(*[ran()] * 3, ran("failed", 2.0), *three))  # they fail with all CPUs, too


@pytest.mark.parametrize(
    "rows",
    [
        [KILLED, KILLED],
        [*[SHRUNK] * 27, *[KILLED] * 2],
        [replace(JOB, outcome="oom")] * 5,
        [replace(JOB, outcome="oom", alloc_cpu_cores=1.0)] * 5,
        [KILLED, KILLED, *[SHRUNK] * 20, KILLED],
    ],
    ids=[
        "two kills are chance",
        "no more than the limit",
        "unshrunk jobs are their users' own",
        "so is memory that was not shrunk",
        "the window moved on",
    ],
)
def test_little_harm_stops_nothing(rows: list[Finished]) -> None:
    assert not braked(in_turn(*rows))


def test_a_brake_that_was_written_stands_whatever_becomes_of_the_jobs() -> None:
    state = FeedbackState(settings=SETTINGS)

    state.apply(Brake(trace="pai", cluster="east", task_type="ctr", group="g3", why="kills", at=1.0))

    assert state.frozen().braked("pai", "ctr", "east", "g3") == Stop(
        scope=("pai", "east", "ctr", "", "g3"), why="kills", since=1.0
    )
    assert state.unwritten == {}


def test_the_most_specific_mode_wins() -> None:
    state = FeedbackState(settings=SETTINGS)
    for task_type, group, cluster, mode in (
        ("", "", "", "enforce"),
        ("ctr", "", "", "observe"),
        ("", "g3", "", "enforce"),
        ("ctr", "", "west", "enforce"),
    ):
        state.apply(
            ModeSet(trace="pai", cluster=cluster, task_type=task_type, group=group, mode=mode, caller="o", at=1.0)
        )
    learned = state.frozen()

    assert learned.mode("pai", "nlp", None) == "enforce"
    assert learned.mode("pai", "ctr", "g4") == "observe"
    assert learned.mode("pai", "ctr", "g3") == "enforce"
    assert learned.mode("pai", "ctr", None, "west") == "enforce"
    assert learned.mode("pai", "ctr", None, "east") == "observe"
    assert learned.mode("philly", "ctr", "g3") == "observe"
