"""The page on planning own jobs: carried out step by step; it names every reason and system."""

import json
import re
from pathlib import Path
from typing import get_args

import pytest

from modelserve.contract.plans import PlanReason
from pipelines.connect.actuators import ACTUATORS
from tests.own_cluster_examples import steps

PAGE = Path(__file__).resolve().parents[1] / "docs" / "plan.md"
TEXT = PAGE.read_text(encoding="utf-8")


@pytest.mark.slow
def test_every_step_gives_the_answer_shown(tmp_path: Path) -> None:
    for step in steps(TEXT):
        said = step.said_in(tmp_path)
        assert step.answer is None or said == step.answer, "`python -m tests.own_cluster_examples docs/plan.md`"

    plan = json.loads((tmp_path / "plan.json").read_text())
    assert 0.0 < plan["planned_g"] <= 700.0


def test_every_reason_and_system_is_named() -> None:
    assert set(re.findall(r"^\| `(\w+)` \|", TEXT, re.MULTILINE)) == {*get_args(PlanReason), *ACTUATORS}
