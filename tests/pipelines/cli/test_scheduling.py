"""`taut recommend | simulate`: options that cannot be meant, and answers from elsewhere."""

import pytest
from typer.testing import CliRunner

from pipelines.cli import app
from pipelines.cli.scheduling import PlacementOption, QueueOption
from scheduler_core.placement import PLACEMENTS
from scheduler_core.queueing import QUEUE_POLICIES


def test_every_policy_and_placement_can_be_named() -> None:
    assert [option.value for option in QueueOption] == list(QUEUE_POLICIES)
    assert [option.value for option in PlacementOption] == list(PLACEMENTS)


@pytest.mark.parametrize(("option", "known"), [("--policy", "srtf"), ("--placement", "first_fit")])
def test_an_unknown_policy_is_bad_usage_that_names_the_known_ones(option: str, known: str) -> None:
    result = CliRunner().invoke(app, ["simulate", option, "magic"])

    assert result.exit_code == 2
    assert known in result.stderr
