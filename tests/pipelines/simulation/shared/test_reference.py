"""The compiled engine of shared machines against a slow reference in plain Python, over random worlds."""

from collections import Counter
from typing import Any

import pytest

from pipelines.simulation.engine.schedule import Ending
from pipelines.simulation.shared.run import SharedRun
from tests.pipelines.simulation.shared.reference import Reference
from tests.pipelines.simulation.shared.worlds import (
    ARMS,
    POLICIES,
    SHARINGS,
    VARIATIONS,
    World,
    killed_of,
    simulated,
    world,
)


def drawn(seed: int, jobs: int) -> World:
    """Draw a world; every arm meets every variation, policy and sharing within 300 seeds."""
    return world(
        seed,
        jobs,
        arm=ARMS[seed % len(ARMS)],
        policy=POLICIES[seed % len(POLICIES)],
        sharing=SHARINGS[seed // 2 % len(SHARINGS)],
        variation=list(VARIATIONS)[seed // 5 % len(VARIATIONS)],
    )


def runs_of(found: SharedRun) -> list[tuple[Any, ...]]:
    """Return every run as (job, start, end, ending, machines with instances)."""
    schedule = found.schedule
    rows = []
    for at, job in enumerate(schedule.job.tolist()):
        held = slice(schedule.host_offsets[at], schedule.host_offsets[at + 1])
        hosts = dict(zip(schedule.hosts[held].tolist(), schedule.host_counts[held].tolist(), strict=True))
        ending = Ending(schedule.ending[at]).name.lower()
        rows.append((job, schedule.start_s[at], schedule.end_run_s[at], ending, hosts))
    return rows


def agree(one: World) -> tuple[SharedRun, int]:
    """Simulate a world twice, and compare runs, kills and lost time; return the run, and the number of presses."""
    found, expected = simulated(one), Reference(one).run()
    runs = [
        (run.job, run.start_s, run.end_s, ending_of(one, run.job, run.ending), dict(Counter(run.hosts)))
        for run in expected.runs
    ]
    got = runs_of(found)
    assert [(row[0], row[3], row[4]) for row in got] == [(row[0], row[3], row[4]) for row in runs]
    for row, run in zip(got, runs, strict=True):
        assert row[1:3] == pytest.approx(run[1:3], abs=1e-5)
    assert len(killed_of(found)) == expected.kills
    for job in expected.jobs:
        assert found.lost_s[job.row] == pytest.approx(job.lost_s, abs=1e-4)
    return found, expected.presses


def ending_of(one: World, job: int, ending: str) -> str:
    return "failed" if ending == "completed" and one.workload.fails[job] else ending


def test_the_engine_agrees_with_the_reference() -> None:
    kills = runs = presses = 0
    for seed in range(45):
        found, pressed = agree(drawn(seed, 12))
        kills, runs, presses = kills + len(killed_of(found)), runs + len(found.schedule.job), presses + pressed
    assert presses > 5, "the worlds are too quiet to show anything"
    assert runs > 100, "the worlds are too empty to show anything"
    assert kills > 5, "the worlds are too empty to show anything"


@pytest.mark.slow
@pytest.mark.parametrize("part", range(4))
def test_the_engine_agrees_with_the_reference_in_more_worlds(part: int) -> None:
    kills, presses, runs = 0, 0, dict.fromkeys(ARMS, 0)
    for seed in range(1000 + 80 * part, 1080 + 80 * part):
        found, pressed = agree(drawn(seed, 24))
        kills, presses = kills + len(killed_of(found)), presses + pressed
        runs[ARMS[seed % len(ARMS)]] += len(found.schedule.job)
    # At most 12.5 jobs a world in the mean: of up to 1000, some never fit or start, and those killed run again.
    assert sum(runs.values()) > 400, "the worlds are too empty to show anything"
    assert min(runs.values()) > 20, f"too few runs of an arm: {runs}"
    assert kills > 100, "the worlds are too empty to show anything"
    assert presses > 50, "the worlds are too quiet to show anything"
