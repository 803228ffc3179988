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
    reclaimed = [{"arm": "shrunk", "resource": "gpus", "jobs": 3}, {"arm": "oracle", "resource": "gpus", "jobs": 9}]
    return SimulationResult(
        rows=rows, reclaimed=reclaimed, model_decided_share={}, recommendations={}, notes=[]
    )  # fmt: skip


def test_truths_that_agree_stand_once_and_others_each() -> None:
    rows = outcome_rows(simulated(unchanged=14.0, contention=12.0))

    assert [(r["arm"], r["truth"], r["completed"]) for r in rows] == [
        ("requested", "any", 10.5),
        ("shrunk", "unchanged", 14.5),
        ("shrunk", "contention", 12.5),
    ]


def test_only_the_arm_asked_for_is_shown_as_reclaimed() -> None:
    assert reclaimed_rows(simulated(unchanged=1.0, contention=1.0)) == [{"resource": "gpus", "jobs": 3}]
