"""The demo's tables: reshaped from what training and simulation return, nothing lost and nothing made up."""

import pytest

from pipelines.cli.demo_tables import OUTCOME_COLUMNS, headline_rows, outcome_rows, reclaimed_rows, sentence
from pipelines.simulation.simulate import SimulationResult


def simulated(**completed: float) -> SimulationResult:
    figures = dict.fromkeys(OUTCOME_COLUMNS, 0.0)
    rows = [
        {
            **figures,
            "trace": "made",
            "arm": arm,
            "truth": truth,
            "devices": "all",
            "seed": seed,
            "completed": value + seed,
        }
        for arm, truth, value in (
            ("requested", "unchanged", 10.0),
            ("requested", "contention", 10.0),
            ("shrunk", "unchanged", completed["unchanged"]),
            ("shrunk", "contention", completed["contention"]),
        )
        for seed in (0, 1)
    ]
    reclaimed = [
        {"arm": arm, "resource": "gpus", "reason": reason, "requested": 4.0, "target": target}
        for arm, reason, target in (("shrunk", "floor", 2.0), ("shrunk", "cold_start", 4.0), ("oracle", "floor", 1.0))
    ]
    return SimulationResult(
        rows=rows, reclaimed=reclaimed, notes=[]
    )  # fmt: skip


def test_truths_that_agree_stand_once_and_others_each() -> None:
    rows = outcome_rows(simulated(unchanged=14.0, contention=12.0))

    assert [(r["arm"], r["truth"], r["completed"]) for r in rows] == [
        ("requested", "any", 10.5),
        ("shrunk", "unchanged", 14.5),
        ("shrunk", "contention", 12.5),
    ]


def test_only_the_arm_asked_for_is_summed_per_resource() -> None:
    assert reclaimed_rows(simulated(unchanged=1.0, contention=1.0)) == [
        {"resource": "gpus", "requested": 8.0, "target": 6.0, "reclaimed_frac": 0.25}
    ]


def rows(**completed: float) -> list[dict[str, object]]:
    """Return result rows of two seeds; jobs on devices of known memory are in rows of their own."""
    return [
        {
            "trace": "made",
            "arm": arm,
            "truth": "shared",
            "devices": devices,
            "seed": seed,
            "completed": value + seed if devices == "all" else 0.0,
            "gpu_used_frac": 0.25 + 0.5 * seed,
            "stretched_share": 0.015,
            "killed": seed,
        }
        for devices in ("all", "known")
        for arm, value in completed.items()
        for seed in (0, 1)
    ]


def test_rows_are_means_over_seeds_of_all_jobs() -> None:
    table = headline_rows(rows(oracle=199.5, requested=99.5, reclaim=149.5), gpus=32)

    assert [(row["requests"], row["jobs finished"]) for row in table] == [
        ("requested", 100.0),
        ("taut", 150.0),
        ("possible", 200.0),
    ]
    assert table[0] == {
        "requests": "requested",
        "jobs finished": 100.0,
        "GPUs truly used": "16.0 of 32",
        "jobs slowed": "1.5%",
        "jobs killed": 0.5,
    }


@pytest.mark.parametrize(
    ("finished", "expected"),
    [
        (
            {"requested": 99.5, "reclaim": 149.5, "oracle": 199.5},
            "150 jobs finish on the same machines instead of 100 (+50%), 50% of what sizing each job by its true mean "
            "use would add; 1.5% of the jobs are slowed",
        ),
        ({"requested": 99.5, "reclaim": 89.5, "oracle": 99.5}, "instead of 100 (-10%); 1.5% of the jobs are slowed"),
        (
            {"requested": -0.5, "reclaim": -0.5, "oracle": -0.5},
            "instead of 0; 1.5% of the jobs are slowed, 0.5 are killed",
        ),
    ],
)
def test_the_sentence_says_what_the_table_means(finished: dict[str, float], expected: str) -> None:
    assert expected in sentence(headline_rows(rows(**finished), gpus=32))
