"""What a run shows in MLflow beside parameters and metrics: learning curves, tables and the picture."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import polars as pl

from pipelines.models.evaluate import FitRecord
from pipelines.models.tracking import track
from tests.pipelines.models.tracking.tracked import CUT, model_of


def test_the_run_holds_the_learning_curves_the_tables_and_the_picture(uri: str, mlflow_of: Any, tmp_path: Path) -> None:
    rounds = {"round": [1, 2, 3], "latest_trained": [0.5, 0.4, 0.3], "later": [0.6, 0.5, None]}
    weeks = pl.DataFrame({"week": [CUT.date()], "model": ["xgboost"], "jobs": [7], "pinball": [0.3]})
    record = FitRecord(rounds=pl.DataFrame(rounds), weeks=weeks, calibration=pl.DataFrame({"share": [0.9]}))

    tracked = track(replace(model_of("curved"), record=record), uri=uri, picture=b"drawn")

    client = mlflow_of.MlflowClient()
    curves = {
        name: [(each.step, each.value) for each in client.get_metric_history(tracked.run_id, f"rounds/{name}")]
        for name in ("latest_trained", "later")
    }
    files = {
        each.path: Path(client.download_artifacts(tracked.run_id, each.path, str(tmp_path)))
        for each in client.list_artifacts(tracked.run_id)
    }
    assert curves == {"latest_trained": [(1, 0.5), (2, 0.4), (3, 0.3)], "later": [(1, 0.6), (2, 0.5)]}
    assert files["evaluation.png"].read_bytes() == b"drawn"
    assert pl.read_json(files["weeks.json"])["pinball"].to_list() == [0.3]
    assert json.loads(files["calibration.json"].read_text()) == [{"share": 0.9}]
