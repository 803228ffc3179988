"""Hindsight with real models: beside a finished job is stored what would have been answered at its submission."""

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from modelserve.contract.calls import PREDICT
from modelserve.learning.feedback import scored_in_hindsight
from modelserve.loading.models import ModelSet
from modelserve.store.finished import Finished, newest_finished
from tests.modelserve.answering import answer_of, folder_of
from tests.modelserve.feedback_cases import ACCOUNTING, answered, body, finished, service_of
from tests.modelserve.mirrored import NAME, models_of


@pytest.fixture
def service(tmp_path: Path, small_bundles: dict[str, Path]) -> Iterator[Any]:
    folder = folder_of(tmp_path / "bundles", small_bundles)
    models = models_of(folder.path)
    models.refresh()
    opened = service_of(tmp_path / "serve.db", models)
    yield opened
    opened.store.close()


def stored(service: Any) -> dict[str, Finished]:
    return {each.job_id: each for each in newest_finished(service.store, limit=100)}


def asked(job: dict[str, Any]) -> dict[str, Any]:
    names = ("job_id", "task_type", "cluster", "user", "group", "role", "workload", "gpu_type", "instances", "request")
    return {**{name: job[name] for name in names if name in job}, "submit_ts": job["submit_ts"]}


def predicted(service: Any, *jobs: dict[str, Any]) -> list[dict[str, Any]]:
    return answer_of(service, PREDICT, jobs=[asked(job) for job in jobs])["predictions"]


def test_what_is_stored_is_what_was_answered(service: Any) -> None:
    jobs = [finished("a"), finished("b", user="u3", group="g1"), finished("c", user="new", group=None)]
    answers = predicted(service, *jobs)

    service.take_feedback(body(jobs), ACCOUNTING)

    for job_id, answer in zip("abc", answers, strict=True):
        kept = stored(service)[job_id]
        assert (kept.run_time_model, kept.usage_model) == ("runtime.pai.ctr@7", "usage.pai.ctr@7")
        assert {"p50": kept.p50_s, "p90": kept.p90_s} == pytest.approx(answer["run_time_s"])
        peaks = {name: getattr(kept, f"peak_{name}") for name in answer["peak_use"]}
        assert peaks == pytest.approx(answer["peak_use"])


def test_feedback_moves_later_answers_and_none_of_another_cluster(service: Any) -> None:
    here, elsewhere = finished("later", 60), finished("later", 60, cluster="west")
    before = predicted(service, here, elsewhere)

    answered(service, "all", jobs=40)
    service.take_feedback(body([finished(f"a{i}", i, answer_id="all") for i in range(40)]), ACCOUNTING)
    after = predicted(service, here, elsewhere)

    assert after[0]["run_time_s"] != before[0]["run_time_s"]
    assert after[0]["measured_runs"] > before[0]["measured_runs"]
    assert after[1]["run_time_s"] == before[1]["run_time_s"]


def test_a_job_that_names_no_cluster_is_of_its_histories(service: Any) -> None:
    unnamed = finished("a")
    del unnamed["cluster"]

    [first, second] = service.take_feedback(body([unnamed, finished("a")]), ACCOUNTING).results

    assert (first.status, second.status) == ("accepted", "duplicate")
    assert stored(service)["a"].cluster == "pai"


def test_a_type_without_a_model_is_stored_without_figures(service: Any) -> None:
    service.take_feedback(body([finished("a", task_type="nlp", workload="bert")]), ACCOUNTING)

    kept = stored(service)["a"]
    assert (kept.run_time_model, kept.p50_s, kept.usage_model, kept.peak_mem_gib) == (None, None, None, None)


def test_a_model_that_fails_costs_its_figures_only(service: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object) -> None:
        raise ValueError("no rows today")

    monkeypatch.setattr("modelserve.learning.feedback._run_times", fail)

    service.take_feedback(body([finished("a")]), ACCOUNTING)

    kept = stored(service)["a"]
    assert (kept.run_time_model, kept.p50_s) == (None, None)
    assert kept.usage_model == "usage.pai.ctr@7"


def test_rows_of_many_types_keep_their_order(service: Any) -> None:
    service.take_feedback(body([finished("seed")]), ACCOUNTING)
    seed = stored(service)["seed"]
    rows = [replace(seed, job_id=f"j{i}", task_type="ctr" if i % 2 else "nlp", workload=None) for i in range(6)]

    scored = scored_in_hindsight(rows, service.models.current)

    assert [each.job_id for each in scored] == [f"j{i}" for i in range(6)]
    fresh = scored_in_hindsight([replace(rows[0], p50_s=None, run_time_model=None)], service.models.current)
    assert fresh[0].p50_s is None


def test_what_was_fed_is_there_after_a_reload(service: Any, tmp_path: Path) -> None:
    service.take_feedback(body([finished("a")]), ACCOUNTING)
    again = ModelSet(tmp_path / "bundles", past=service.feed.past, clock=lambda: 0.0)

    again.refresh()

    frame = again.current.champions[NAME].history.frame()
    assert frame["job_id"].to_list().count("a") == 1
