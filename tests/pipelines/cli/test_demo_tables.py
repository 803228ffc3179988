"""The demo's tables: reshaped from what training and simulation return, nothing lost and nothing made up."""

from pipelines.cli.demo_tables import OUTCOME_COLUMNS, outcome_rows, reclaimed_rows
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
