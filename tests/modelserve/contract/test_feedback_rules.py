"""Lessons: what counts as shrunk, what may be learnt of it, when floors rise and fall, when shrinking stops."""

import math
from dataclasses import replace

import pytest

from modelserve.contract.feedback_rules import CALM_RUNS, OOM_MARGIN, Lessons, shrunk_resources, teachable_use
from modelserve.learning.learned import Learned, Stop
from modelserve.settings import ServeSettings
from modelserve.store.controls import Brake, ModeSet, Reset
from modelserve.store.finished import Finished

SETTINGS = ServeSettings(kill_limit_frac=0.1, kill_window=20, kill_least=2)

JOB = Finished(
    trace="pai",
    cluster="east",
    job_id="a1",
    role="worker",
    task_type="ctr",
    user="u7",
    group="g3",
    vc=None,
    workload="ctr",
    gpu_type="T4",
    answer_id=None,
    instances=2,
    submit_us=1_000_000,
    start_us=2_000_000,
    end_us=62_000_000,
    run_s=60.0,
    outcome="completed",
    req_cpu_cores=6.0,
    req_mem_gib=20.0,
    req_gpus=0.5,
    alloc_cpu_cores=6.0,
    alloc_mem_gib=20.0,
    alloc_gpus=0.5,
    used_cpu_cores=2.0,
    used_gpus=0.1,
    mem_max_gib=8.0,
    gpu_mem_max_gib=3.0,
    peak_cpu_cores=3.0,
    peak_mem_gib=9.0,
    peak_gpus=0.2,
    peak_gpu_mem_gib=4.0,
    digest="d",
    caller="tester",
    at=1.0,
)
SHRUNK = replace(JOB, alloc_mem_gib=10.0)
KILLED = replace(SHRUNK, outcome="oom", mem_max_gib=None)


def taught(*rows: Finished) -> Learned:
    lessons = Lessons(settings=SETTINGS)
    for row in rows:
        lessons.finish(row)
    return lessons.frozen()


def floor_of(learned: Learned, cluster: str | None = "east", group: str | None = "g3", role: str = "worker") -> float:
    return learned.memory_floor_gib("pai", cluster, group, role, "u7")


@pytest.mark.parametrize(
    ("changes", "shrunk"),
    [
        ({}, ()),
        ({"alloc_mem_gib": 10.0}, ("mem_gib",)),
        ({"alloc_cpu_cores": 3.0, "alloc_gpus": 0.25}, ("cpu_cores", "gpus")),
        ({"alloc_mem_gib": 30.0}, ()),
        ({"alloc_mem_gib": 20.0 * (1 - 1e-9)}, ()),
        ({"alloc_mem_gib": None}, ()),
        ({"req_mem_gib": None, "alloc_mem_gib": 1.0}, ()),
    ],
)
def test_less_than_asked_for_is_shrunk(changes: dict[str, float | None], shrunk: tuple[str, ...]) -> None:
    assert shrunk_resources(replace(JOB, **changes)) == shrunk  # type: ignore[arg-type]


def test_an_unshrunk_job_teaches_all_it_measured() -> None:
    use = teachable_use(JOB)

    assert (use.cpu_cores, use.gpus, use.mem_max_gib, use.gpu_mem_max_gib) == (2.0, 0.1, 8.0, 3.0)


@pytest.mark.parametrize(("used", "taught_gib"), [(8.0, None), (9.0, None), (9.5, 9.5), (None, None)])
def test_a_shrunk_resource_teaches_upwards_only(used: float | None, taught_gib: float | None) -> None:
    use = teachable_use(replace(SHRUNK, mem_max_gib=used))

    assert use.mem_max_gib == taught_gib
    assert use.cpu_cores == 2.0


def test_a_shrunk_share_of_a_gpu_holds_its_memory_too() -> None:
    use = teachable_use(replace(JOB, alloc_gpus=0.25))

    assert (use.gpus, use.gpu_mem_max_gib) == (None, None)
    assert use.measured


def test_without_a_prediction_a_shrunk_resource_teaches_nothing() -> None:
    use = teachable_use(replace(SHRUNK, peak_mem_gib=None, mem_max_gib=10.0))

    assert use.mem_max_gib is None


def test_a_kill_raises_the_floor_of_the_like_at_once() -> None:
    learned = taught(KILLED)

    assert floor_of(learned) == pytest.approx(10.0 * OOM_MARGIN)
    assert floor_of(learned, cluster=None) == pytest.approx(10.0 * OOM_MARGIN)
    assert math.isnan(floor_of(learned, cluster="west"))
    assert math.isnan(floor_of(learned, group="g4"))
    assert math.isnan(floor_of(learned, role="ps"))
    assert math.isnan(learned.memory_floor_gib("philly", "east", "g3", "worker"))


def test_jobs_without_a_group_are_alike_by_user() -> None:
    learned = taught(replace(KILLED, group=None))

    assert floor_of(learned, group=None) == pytest.approx(12.0)
    assert math.isnan(floor_of(learned))


def test_the_highest_kill_stands() -> None:
    learned = taught(KILLED, replace(KILLED, alloc_mem_gib=14.0), replace(KILLED, alloc_mem_gib=11.0))

    assert floor_of(learned) == pytest.approx(14.0 * OOM_MARGIN)


def test_a_floor_falls_after_enough_calm_runs_in_a_row() -> None:
    calm = replace(JOB, mem_max_gib=5.0)

    assert floor_of(taught(KILLED, *[calm] * (CALM_RUNS - 1))) == pytest.approx(12.0)
    assert math.isnan(floor_of(taught(KILLED, *[calm] * CALM_RUNS)))
    high = replace(JOB, mem_max_gib=10.5)
    assert floor_of(taught(KILLED, *[calm] * 15, high, *[calm] * 15)) == pytest.approx(12.0)


def test_shrunk_or_unmeasured_runs_lower_no_floor() -> None:
    shrunk, unmeasured = replace(SHRUNK, mem_max_gib=5.0), replace(JOB, mem_max_gib=None)

    assert floor_of(taught(KILLED, *[shrunk, unmeasured] * CALM_RUNS)) == pytest.approx(12.0)


def test_too_many_kills_stop_the_type_until_it_is_reset() -> None:
    lessons = Lessons(settings=SETTINGS)
    for row in (KILLED, *[SHRUNK] * 5, replace(KILLED, at=60.0)):
        lessons.finish(row)

    assert "2 of the last 7 shrunk jobs" in str(lessons.frozen().braked("pai", "ctr", "east"))
    assert "since 1970-01-01T00:01:00Z" in str(lessons.frozen().braked("pai", "ctr", "east"))
    assert lessons.frozen().braked("pai", "nlp", "east") is None
    assert lessons.frozen().braked("pai", "ctr", "west") is None
    assert lessons.frozen().braked("pai", "ctr") is not None

    lessons.reset(Reset(trace="pai", cluster="", task_type="ctr", caller="operator", at=2.0))
    assert lessons.frozen().braked("pai", "ctr", "east") is None
    lessons.finish(KILLED)
    assert lessons.frozen().braked("pai", "ctr", "east") is None


@pytest.mark.parametrize(
    "rows",
    [
        [KILLED],
        [*[SHRUNK] * 18, KILLED, KILLED],
        [replace(JOB, outcome="oom")] * 5,
        [KILLED, *[SHRUNK] * 20, KILLED],
    ],
    ids=["one kill is chance", "no more than the limit", "unshrunk jobs are their users' own", "the window moved on"],
)
def test_few_kills_stop_nothing(rows: list[Finished]) -> None:
    assert taught(*rows).braked("pai", "ctr", "east") is None


def test_a_brake_that_was_written_stands_whatever_becomes_of_the_jobs() -> None:
    lessons = Lessons(settings=SETTINGS)

    lessons.brake(Brake(trace="pai", cluster="east", task_type="ctr", why="kills", at=1.0))

    assert lessons.frozen().braked("pai", "ctr", "east") == Stop(why="kills", since=1.0)
    assert lessons.unwritten == {}


def test_the_most_specific_mode_wins() -> None:
    lessons = Lessons(settings=SETTINGS)
    for task_type, group, cluster, mode in (
        ("", "", "", "enforce"),
        ("ctr", "", "", "observe"),
        ("", "g3", "", "enforce"),
        ("ctr", "", "west", "enforce"),
    ):
        lessons.set_mode(
            ModeSet(trace="pai", cluster=cluster, task_type=task_type, group=group, mode=mode, caller="o", at=1.0)
        )
    learned = lessons.frozen()

    assert learned.mode("pai", "nlp", None) == "enforce"
    assert learned.mode("pai", "ctr", "g4") == "observe"
    assert learned.mode("pai", "ctr", "g3") == "enforce"
    assert learned.mode("pai", "ctr", None, "west") == "enforce"
    assert learned.mode("pai", "ctr", None, "east") == "observe"
    assert learned.mode("philly", "ctr", "g3") == "observe"
