"""`taut experiment cost`: what of the options reaches the experiment."""

import pytest
from typer.testing import CliRunner

from pipelines.cli import app
from pipelines.studies.cost import experiment
from pipelines.studies.cost.experiment import Question
from pipelines.studies.study import Findings


def test_a_load_said_twice_is_run_once(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[Question] = []

    def ask(question: Question, **_: object) -> Findings:
        asked.append(question)
        return Findings(study="cost", trace="gavel", tables={}, frames={}, charts={}, notes=())

    monkeypatch.setattr(experiment, "ask", ask)

    loads = [word for load in ("0.7", "0.3", "0.7") for word in ("--load", load)]
    result = CliRunner().invoke(app, ["experiment", "cost", *loads, "--format", "json"])

    assert result.exit_code == 0, result.stderr
    assert (asked[0].loads, asked[0].at_loads) == ((0.7, 0.3), (0.7,))
