"""The section on models: tables by their cards, and importances."""

from dataclasses import replace
from datetime import timedelta
from pathlib import Path

import numpy as np
import polars as pl
import pytest
import xgboost as xgb

from features.build import build
from features.contract import FeatureContract
from features.history import History
from modelserve.bundle.bundle import Bundle, read_bundle, write_bundle
from modelserve.bundle.card import USAGE_TARGETS, Card, Importance, ResourceImportance, ResponseState
from pipelines.lake.lake import Lake
from pipelines.report.models import models
from pipelines.report.parts import Note, Traces
from tests.pipelines.report.tiny import figures, tables
from tests.pipelines.statistics.lakes import T0

CUT = T0 + timedelta(hours=12)


def bundle_of(folder: Path, kind: str, jobs: pl.DataFrame, history: History) -> Bundle:
    """Return a model of the jobs of kind ctr: run times at p50 and p90, or the four peaks."""
    frame = build(jobs, history, "submit")
    contract = FeatureContract.fit(frame)
    targets = ["run_s"] if kind == "runtime" else list(USAGE_TARGETS)
    quantiles = [0.5, 0.9] if kind == "runtime" else [0.95]
    rows = xgb.DMatrix(contract.encode(frame), np.log(jobs["run_s"].to_numpy()), nthread=1)
    params: dict[str, object] = {"max_depth": 2, "min_child_weight": 0.0, "nthread": 1, "seed": 1}
    if kind == "runtime":
        params |= {"objective": "reg:quantileerror", "quantile_alpha": quantiles}
    said = {
        "name": f"{kind}.toy.ctr", "kind": kind, "trace": "toy", "task_type": "ctr", "targets": targets,
        "quantiles": quantiles, "relative": False, "offsets": {}, "important": [], "support": {}, "params": {},
        "metrics": {"n": 9.0, "pinball": 0.4, "coverage_p90": 0.88, "gpus_coverage": 0.97}, "until": CUT,
        "created": CUT, "rows": jobs.height, "data_fingerprint": "a1", "contract_fingerprint": contract.fingerprint,
    }  # fmt: skip
    write_bundle(
        folder,
        card=Card.model_validate(said),
        contract=contract,
        boosters={target: xgb.train(params, rows, 8) for target in targets},
        history=history,
        importances=[Importance(feature="req_gpus", mean=0.3, std=0.1, repeats=5, sign=-0.5)],
    )
    return read_bundle(folder, version="3")


@pytest.fixture(scope="module")
def bundles(tmp_path_factory: pytest.TempPathFactory, lake: Lake) -> dict[str, Bundle]:
    jobs = lake.table("jobs", "toy").collect()
    history = History.of(jobs, lake.table("usage", "toy").collect())
    place = tmp_path_factory.mktemp("bundles")
    read = [bundle_of(place / kind, kind, jobs, history) for kind in ("runtime", "usage")]
    return {each.card.name: each for each in read}


def test_the_section_says_why_an_answer_has_no_importances_and_shows_what_run_time_responds_to(
    lake: Lake, bundles: dict[str, Bundle]
) -> None:
    found = [
        ResourceImportance(resource=name, mean=mean, std=0.1, repeats=5, sign=-0.9)
        for name, mean in (("cpu_cores", 0.15), ("gpus", 0.3), ("net_bytes_per_s", 0.4))
    ]
    response = ResponseState(
        trusted=True, why="leads", rows=99, lead=0.2, lead_lo=0.1, lead_hi=0.3, importances=tuple(found)
    )
    bundle = bundles["runtime.toy.ctr"]
    card = bundle.card.model_copy(update={"no_importances": "the history answers", "response": response})
    bare = replace(bundle, card=card, importances=())

    section = models(Traces(lake=lake, names=("toy",)), {card.name: bare}, ())

    [row] = tables([section])["response-models"].rows.to_dicts()
    assert (row["model"], row["trusted"], row["lead_lo"], row["matter"]) == (
        "runtime.toy.ctr@3",
        True,
        0.1,
        "gpus net_bytes_per_s",
    )
    assert "importance-runtime.toy.ctr" not in figures([section])
    said = [part.text for part in section.parts if isinstance(part, Note)]
    assert said == ["runtime.toy.ctr: no importances, because the history answers."]


def test_the_section_shows_cards_and_importances(lake: Lake, bundles: dict[str, Bundle]) -> None:
    section = models(Traces(lake=lake, names=("toy", "bare")), bundles, ("usage.toy.nlp: damaged",))

    assert set(figures([section])) == {"importance-runtime.toy.ctr", "importance-usage.toy.ctr"}
    shown = tables([section])
    assert shown["runtime-models"].rows.row(0, named=True)["model"] == "runtime.toy.ctr@3"
    assert shown["usage-models"].rows["coverage"].to_list() == [None, None, 0.97, None]
    said = [part.text for part in section.parts if isinstance(part, Note)]
    assert said == ["bare: no model of this trace.", "Left out: usage.toy.nlp: damaged"]
