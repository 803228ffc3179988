"""A model that is surely worse than a simple answer, from training to the service: it never answers."""

from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing
from datetime import timedelta
from pathlib import Path

import numpy as np
import polars as pl
import pytest
from fastapi.testclient import TestClient

from modelserve.api.app import create_app
from modelserve.bundle.bundle import read_bundle
from modelserve.bundle.registry import mirror
from modelserve.service import open_service
from modelserve.settings import ServeSettings
from pipelines.errors import RegistryError
from pipelines.models.boosting import Boosting
from pipelines.models.examples import Setting
from pipelines.models.judging import COMBINED
from pipelines.models.model import TrainedModel, write_model
from pipelines.models.recipes import Recipe
from pipelines.models.runtime import train_runtime
from pipelines.models.tracking import promote, track, versions
from tests.pipelines.models.conftest import T0, make_jobs

NAME = "runtime.made.ctr"
CUT = T0 + timedelta(days=30)
QUICK = Recipe(boosting=Boosting(rounds=30, num_parallel_tree=1, learning_rate=0.3, max_depth=3))
EVERY = make_jobs(3000, 3)


def turned(jobs: pl.DataFrame) -> pl.DataFrame:
    """Return jobs whose run time grows with the requested memory until the cut, and then shrinks with it.

    Few are later, so that the weights of the combination have no time to turn.
    """
    jobs = jobs.filter((pl.col("submit_ts") < CUT) | (pl.int_range(pl.len()) % 10 == 0))
    step = (pl.col("req_mem_gib") / 29.3).log()
    run_s = pl.when(pl.col("submit_ts") < CUT).then((8.0 + 1.5 * step).exp()).otherwise((8.0 - 1.5 * step).exp())
    ended = pl.col("start_ts") + pl.duration(seconds=pl.col("run_s"))
    return jobs.with_columns(run_s=run_s.round()).with_columns(end_ts=ended)


def trained(jobs: pl.DataFrame) -> TrainedModel:
    return train_runtime(Setting(jobs=jobs, trace="made", until=CUT), "ctr", QUICK)


@pytest.fixture(scope="module")
def worse() -> TrainedModel:
    return trained(turned(EVERY))


def test_its_bundle_holds_the_best_simple_answer_and_no_trees(worse: TrainedModel, tmp_path: Path) -> None:
    losses = dict(worse.evaluation.select("model", "pinball").iter_rows())
    [excess_lo] = worse.evaluation.filter(pl.col("model") == COMBINED)["excess_lo"]

    write_model(worse, tmp_path / "bundle", created=CUT)
    bundle = read_bundle(tmp_path / "bundle")

    simple = ("reference", "similar_jobs", "same_gpus", "newest_jobs", "typical")
    assert excess_lo > 0.0
    assert bundle.card.verdict == "worse"
    assert bundle.card.answer == min(simple, key=lambda name: losses[name])
    assert bundle.card.metrics["pinball"] == losses[bundle.card.answer] < losses[COMBINED]
    assert bundle.quantile_forest is None
    assert bundle.boosters["run_s"].num_boosted_rounds() == 1


@pytest.fixture
def served() -> Iterator[Callable[[Path], TestClient]]:
    """Return a maker of clients of a service over a folder of cached models."""
    with ExitStack() as stack:

        def make(folder: Path) -> TestClient:
            settings = ServeSettings(bundles=folder, store=f"sqlite:///{folder}/serve.db", trace="made")
            return stack.enter_context(TestClient(create_app(stack.enter_context(closing(open_service(settings))))))

        yield make


@pytest.mark.slow
def test_it_never_answers_over_http(
    worse: TrainedModel, uri: str, tmp_path: Path, served: Callable[[Path], TestClient]
) -> None:
    good = trained(EVERY)
    job = {"job_id": "a", "task_type": "ctr", "cluster": "made", "group": "g1", "user": "u1", "role": "worker"}
    asked = {"trace": "made", "jobs": [{**job, "request": {"gpus": 1.0, "mem_gib": 64.0, "cpu_cores": 4.0}}]}

    track(worse, uri=uri)
    promote(NAME, uri=uri)
    mirror(uri, tmp_path)
    first = served(tmp_path)
    [alone] = first.post("/v1/predictions", json=asked).json()["predictions"]
    [row] = first.get("/v1/models").json()["models"]
    track(good, uri=uri)
    promote(NAME, uri=uri)
    track(worse, uri=uri)
    with pytest.raises(RegistryError, match=rf"worse: .*{worse.answer} answers; {NAME}@2 goes on answering"):
        promote(NAME, uri=uri)
    mirror(uri, tmp_path)
    [proven] = served(tmp_path).post("/v1/predictions", json=asked).json()["predictions"]

    newest = turned(EVERY).sort("end_ts")["run_s"].to_numpy()[-20:]
    assert alone["run_time_s"]["p50"] == pytest.approx(np.exp(np.quantile(np.log(newest), 0.5)))
    assert alone["run_time_s"]["p90"] >= np.exp(np.quantile(np.log(newest), 0.9)) - 1e-9
    assert (alone["basis"], alone["verdict"], alone["ended_jobs"]) == ("newest_jobs", "worse", 20)
    assert (row["answer"], row["verdict"]) == ("newest_jobs", "worse")
    assert row["why"] == versions(uri=uri, name=NAME)[0].reasons
    assert (proven["basis"], proven["verdict"], proven["models"]["run_time"]) == ("model", "better", f"{NAME}@2")
