from contextlib import suppress

import numpy as np
import pytest
from typer.testing import CliRunner

from pipelines.cli import app
from pipelines.studies.carbon import gap
from pipelines.studies.carbon.gap import INSTANCES, PLANNERS, Round, drawn_round, gap_rows, measured_like
from pipelines.studies.carbon.optimum import exhaustive
from scheduler_core.errors import BadInput
from scheduler_core.planning.carbon.elastic import CountsAndFrequencies

ROUNDS = 8


def test_no_planner_beats_the_best_of_all_plans() -> None:
    rows = gap_rows(ROUNDS, 50)

    assert [(row["instances"], row["plan"]) for row in rows] == [
        (kind, name) for kind in INSTANCES for name in PLANNERS
    ]
    for row in rows:
        assert row["rounds"] == ROUNDS
        assert -1e-9 <= row["lo"] <= row["mean_gap"] <= row["hi"] <= row["worst_gap"]
        assert -1e-9 <= row["mean_gap_as_many"] <= row["mean_gap"] + 1e-9
        assert row["met"] == (row["mean_gap"] <= 0.05)
        assert 50 <= row["worst_seed"] < 50 + ROUNDS


def test_the_same_seeds_give_the_same_rows() -> None:
    assert gap_rows(3, 7) == gap_rows(3, 7)
    assert gap_rows(3, 7) != gap_rows(3, 8)


@pytest.mark.parametrize("kind", INSTANCES)
def test_rounds_are_small_enough_for_every_plan_and_their_budgets_vary(kind: str) -> None:
    rounds = [drawn_round(kind, seed) for seed in range(100)]

    assert {len(each.jobs) for each in rounds} == {2, 3, 4}
    assert {each.gpus for each in rounds} == {4, 5, 6, 7, 8}
    assert any(each.jobs.rigid_gpus.any() for each in rounds)
    assert len({round(each.budget_g, 3) for each in rounds}) > 90


def test_measured_like_jobs_are_within_what_was_measured() -> None:
    jobs = measured_like(np.random.default_rng(0), 500, 8)
    efficiency = jobs.steps_per_s[:, 1:] / np.arange(1, 9)
    slowest = 1.0 / jobs.perf[:, 0]

    assert efficiency[:, 0] == pytest.approx(1.0)
    assert efficiency.max() <= 1.0
    assert 0.2 < efficiency[:, 3].min() < 0.6
    assert 1.0 < slowest.min() < slowest.max() < 1.6
    assert 60.0 < jobs.watts[:, -1].min() < jobs.watts[:, -1].max() < 220.0


def test_the_command_prints_the_rows() -> None:
    result = CliRunner().invoke(app, ["study", "carbon-gap", "--rounds", "2", "--format", "csv"])

    assert result.exit_code == 0, result.output
    assert result.stdout.splitlines()[0].startswith("instances,plan,rounds,mean_gap")
    assert len(result.stdout.splitlines()) == 1 + len(INSTANCES) * len(PLANNERS)


def fewest_put_off(drawn: Round) -> CountsAndFrequencies:
    """Return the best of the plans that postpone as few jobs as can be."""
    for most in range(len(drawn.jobs) + 1):
        with suppress(BadInput):
            return exhaustive(drawn.jobs, **drawn.around(), most_postponed=most)
    raise AssertionError("a plan that postpones all jobs always fits")


def none_at_all(drawn: Round) -> CountsAndFrequencies:
    nothing = np.zeros(len(drawn.jobs), dtype=np.int64)
    return CountsAndFrequencies(gpus=nothing, step=drawn.jobs.optimal_step, postponed=nothing == 0)


def test_gaps_tell_who_postpones_fewer_and_are_to_the_best_of_as_many_too(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gap, "PLANNERS", {"fewest": fewest_put_off, "none": none_at_all})

    rows = {(row["instances"], row["plan"]): row for row in gap_rows(ROUNDS, 4)}

    for kind in INSTANCES:
        fewest, none = rows[kind, "fewest"], rows[kind, "none"]
        assert fewest["mean_gap"] > 0.0 == fewest["mean_gap_as_many"]
        assert fewest["postpones_fewer_frac"] > 0.0 == none["postpones_fewer_frac"]


def test_a_seed_beyond_what_columns_hold_is_refused() -> None:
    result = CliRunner().invoke(app, ["study", "carbon-gap", "--rounds", "2", "--seed", str(2**63)])

    assert result.exit_code == 2
    assert "less than or equal to 2147483648" in " ".join(result.stderr.replace("│", " ").split())
