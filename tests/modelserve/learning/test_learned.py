"""State learnt from feedback: when floors rise and fall, when shrinking stops, which mode holds."""

import math
from dataclasses import replace

import pytest

from modelserve.learning.learned import CALM_RUNS, OOM_MARGIN, FeedbackState, Learned, Stop
from modelserve.settings import ServeSettings
from modelserve.store.changes import Brake, ModeSet, Reset
from modelserve.store.finished import Finished
from tests.modelserve.feedback_cases import JOB

SETTINGS = ServeSettings(kill_limit_frac=0.1, kill_window=20, kill_least=2)

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


def test_too_many_kills_stop_the_type_until_it_is_reset() -> None:
    state = FeedbackState(settings=SETTINGS)
    for row in (KILLED, *[SHRUNK] * 5, replace(KILLED, at=60.0)):
        state.apply(row)

    assert "2 of the last 7 shrunk jobs" in str(state.frozen().braked("pai", "ctr", "east"))
    assert "since 1970-01-01T00:01:00Z" in str(state.frozen().braked("pai", "ctr", "east"))
    assert state.frozen().braked("pai", "nlp", "east") is None
    assert state.frozen().braked("pai", "ctr", "west") is None
    assert state.frozen().braked("pai", "ctr") is not None

    state.apply(Reset(trace="pai", cluster="", task_type="ctr", caller="operator", at=2.0))
    assert state.frozen().braked("pai", "ctr", "east") is None
    state.apply(KILLED)
    assert state.frozen().braked("pai", "ctr", "east") is None


@pytest.mark.parametrize(
    "rows",
    [
        [KILLED],
        [*[SHRUNK] * 18, KILLED, KILLED],
        [replace(JOB, outcome="oom")] * 5,
        [replace(JOB, outcome="oom", alloc_cpu_cores=1.0)] * 5,
        [KILLED, *[SHRUNK] * 20, KILLED],
    ],
    ids=[
        "one kill is chance",
        "no more than the limit",
        "unshrunk jobs are their users' own",
        "so is memory that was not shrunk",
        "the window moved on",
    ],
)
def test_few_kills_stop_nothing(rows: list[Finished]) -> None:
    assert taught(*rows).braked("pai", "ctr", "east") is None


def test_a_brake_that_was_written_stands_whatever_becomes_of_the_jobs() -> None:
    state = FeedbackState(settings=SETTINGS)

    state.apply(Brake(trace="pai", cluster="east", task_type="ctr", why="kills", at=1.0))

    assert state.frozen().braked("pai", "ctr", "east") == Stop(why="kills", since=1.0)
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
