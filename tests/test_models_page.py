"""The commands of docs/models.md, carried out on a small synthetic trace; MLflow's pages are not opened."""

import re
from pathlib import Path

import pytest

from tests.own_cluster_examples import steps
from tests.serving_examples import carry_out

TEXT = (Path(__file__).resolve().parents[1] / "docs" / "models.md").read_text(encoding="utf-8")
QUICK = {"--trials 50": "--trials 1", "taut tune": "taut tune --type ctr", "taut train": "taut train --type ctr"}
KEPT = 3
"""Exit code of `taut retrain` if every champion stays."""


@pytest.mark.slow
def test_every_step_works_as_shown_with_fewer_trials(tmp_path: Path) -> None:
    carry_out(
        "taut synth pai --to raw --tasks 4000 --tagged-share 0.9 && taut ingest pai --from raw --as pai-synth",
        "",
        tmp_path,
        "",
    )
    tuned, retrained, looked = (step.code for step in steps(TEXT))

    for shown, quick in QUICK.items():
        assert shown in tuned
        tuned = tuned.replace(shown, quick)
    tuned, retrained = (code.replace("--trace pai", "--trace pai-synth") for code in (tuned, retrained))
    carry_out(tuned, "", tmp_path, "")
    said = carry_out(f"{retrained.strip()} --type ctr || [ $? = {KEPT} ]", "", tmp_path, "")
    assert re.match(r'\{"trace": "pai-synth", "outcome": "(promoted|kept)", "models": \[\{"model": "', said)
    assert looked.split() == ["mlflow", "ui", "--backend-store-uri", "sqlite:///data/mlflow.db"]
    assert (tmp_path / "data" / "mlflow.db").is_file()
