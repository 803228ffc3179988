import json

import pytest
from typer.testing import CliRunner

from pipelines.cli import app
from pipelines.studies.cost.gap import gap_rows, improvement_rows


@pytest.mark.parametrize("seed", [3, 4])
def test_no_method_costs_less_than_the_optimum_and_relinking_no_more_than_the_greedy(seed: int) -> None:
    rows = gap_rows(6, seed)

    assert all(row["mean_gap_percent"] >= -1e-9 for row in rows)
    for objective in {row["objective"] for row in rows}:
        gap = {row["method"]: row["mean_gap_percent"] for row in rows if row["objective"] == objective}
        assert gap["relinked"] <= gap["randomised"] + 1e-9
        assert gap["relinked"] <= gap["greedy"] + 1e-9


@pytest.mark.slow
def test_every_part_of_the_search_costs_no_more_than_the_greedy_it_begins_with() -> None:
    rows = improvement_rows(2, 5, iterations=2)

    assert {row["instances"] for row in rows} == {2}
    assert all(row["least_lower_percent"] >= -1e-9 for row in rows)


def test_the_command_prints_a_row_for_each_objective_and_method() -> None:
    result = CliRunner().invoke(app, ["study", "cost-gap", "--instances", "2", "--seed", "9", "--format", "json"])

    assert result.exit_code == 0, result.stderr
    assert [row["method"] for row in json.loads(result.stdout)] == ["greedy", "randomised", "relinked"] * 2
