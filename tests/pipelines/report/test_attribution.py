"""SHAP values of models: they add up to the answer, of jobs after the cut, and the section that shows them."""

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
from modelserve.bundle.boosters import raw_outputs
from modelserve.bundle.bundle import Bundle, read_bundle, write_bundle
from modelserve.bundle.card import USAGE_TARGETS, Card, Importance, ResourceImportance, ResponseState
from pipelines.lake.lake import Lake
from pipelines.report.attributions import EXPLAINED_FEATURES, LEAST_LATER, attributions, explained_jobs, shap_values
from pipelines.report.models import models
from pipelines.report.page import page
from pipelines.report.parts import Note, Traces
from tests.pipelines.report.tiny import JOBS, figures, tables
from tests.pipelines.statistics.lakes import T0

CUT = T0 + timedelta(hours=12)


@pytest.fixture(scope="module")
def jobs(lake: Lake) -> pl.DataFrame:
    return lake.table("jobs", "toy").collect()


@pytest.fixture(scope="module")
def history(lake: Lake, jobs: pl.DataFrame) -> History:
    return History.of(jobs, lake.table("usage", "toy").collect())


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
def bundles(tmp_path_factory: pytest.TempPathFactory, jobs: pl.DataFrame, history: History) -> dict[str, Bundle]:
    place = tmp_path_factory.mktemp("bundles")
    read = [bundle_of(place / kind, kind, jobs, history) for kind in ("runtime", "usage")]
    return {each.card.name: each for each in read}


@pytest.mark.parametrize("name", ["runtime.toy.ctr", "usage.toy.ctr"])
def test_shap_values_add_up_to_the_answer_up_to_one_constant(
    name: str, bundles: dict[str, Bundle], jobs: pl.DataFrame, history: History
) -> None:
    bundle = bundles[name]
    matrix = bundle.contract.encode(build(jobs, history, bundle.contract.names))

    values = shap_values(bundle, matrix)

    assert set(values) == set(bundle.card.targets)
    for target, found in values.items():
        rest = raw_outputs(bundle.boosters[target], matrix)[:, 0] - found.sum(axis=1)
        assert np.ptp(rest) < 1e-4
        assert np.abs(found).max() > 0.01


def test_jobs_that_are_explained_came_after_the_cut(bundles: dict[str, Bundle], jobs: pl.DataFrame) -> None:
    many = pl.concat([jobs.with_columns(job_id=pl.col("job_id") + f"-{i}") for i in range(3)])

    shown, later = explained_jobs(many, bundles["runtime.toy.ctr"])

    assert later
    assert shown["submit_ts"].min() >= CUT  # type: ignore[operator]
    assert set(shown["task_type"]) == {"ctr"}


def test_where_few_came_after_it_the_newest_are_explained_and_it_is_said(
    bundles: dict[str, Bundle], jobs: pl.DataFrame, history: History
) -> None:
    [found] = attributions(bundles["runtime.toy.ctr"], jobs, history)

    assert JOBS / 2 * (1 - 12 / JOBS) < LEAST_LATER
    assert not found.later
    assert found.jobs == JOBS // 2
    assert found.rows["feature"].n_unique() == EXPLAINED_FEATURES
    assert found.rows.height == EXPLAINED_FEATURES * found.jobs
    assert found.rows["rank"].drop_nulls().is_between(0.0, 1.0).all()
    strength = found.rows.group_by("feature", maintain_order=True).agg(pl.col("shap").abs().mean())["shap"]
    assert strength.is_sorted(descending=True)


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


def test_a_trace_without_a_job_of_the_kind_is_not_explained(
    bundles: dict[str, Bundle], jobs: pl.DataFrame, history: History
) -> None:
    assert attributions(bundles["runtime.toy.ctr"], jobs.filter(pl.col("task_type") == "nlp"), history) == []


def test_the_section_shows_cards_importances_and_a_swarm_for_each_target(
    lake: Lake, bundles: dict[str, Bundle]
) -> None:
    section = models(Traces(lake=lake, names=("toy", "bare")), bundles, ("usage.toy.nlp: damaged",))

    drawn = set(figures([section]))
    assert {f"shap-usage.toy.ctr-{target}" for target in USAGE_TARGETS} | {"shap-runtime.toy.ctr-run_s"} <= drawn
    assert {"importance-runtime.toy.ctr"} <= drawn
    assert {name.partition("-")[0] for name, each in figures([section]).items() if each.folded} == {"shap"}
    closed = page("t", "s", [section]).partition('<details class="fold"><summary>')[2]
    assert closed.startswith("How features moved single predictions (SHAP values)</summary>")
    shown = tables([section])
    assert shown["runtime-models"].rows.row(0, named=True)["model"] == "runtime.toy.ctr@3"
    assert shown["usage-models"].rows["coverage"].to_list() == [None, None, 0.97, None]
    said = [part.text for part in section.parts if isinstance(part, Note)]
    assert said == ["bare: no model of this trace.", "Left out: usage.toy.nlp: damaged"]
