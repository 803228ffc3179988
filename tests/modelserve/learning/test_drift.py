"""Drift: verdicts by hand-worked figures, from finished jobs, within reach."""

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import text

from modelserve.bundle.bundle import read_bundle, write_bundle
from modelserve.callers import ANYONE, Caller
from modelserve.contract.feedback import ModelDrift
from modelserve.scopes import Scope
from modelserve.store.changes import insert_finished
from modelserve.store.finished import Finished
from tests.modelserve.feedback_cases import JOB, service_of
from tests.modelserve.mirrored import NAME, USAGE, Folder, models_of

EAST = Caller(name="east", scopes=frozenset({Scope.PREDICT}), traces=frozenset({"pai"}), clusters=frozenset({"east"}))
METRICS = {
    NAME: {"coverage_p90": 0.9, "pinball_p50": 0.25},
    USAGE: {"cpu_cores_coverage": 0.95, "mem_gib_coverage": 0.95},
}


def with_figures(source: Path, place: Path, name: str) -> Path:
    """Write a bundle again with figures to be held to."""
    bundle = read_bundle(source)
    write_bundle(
        place,
        card=bundle.card.model_copy(update={"metrics": METRICS[name]}),
        contract=bundle.contract,
        boosters=bundle.boosters,
        history=bundle.history,
        importances=bundle.importances,
    )
    return place


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory, small_bundles: dict[str, Path]) -> Path:
    place = tmp_path_factory.mktemp("drift")
    made = Folder(place / "bundles", small_bundles)
    for name in (NAME, USAGE):
        kind = name.partition(".")[0]
        made.add(name, "7", source=with_figures(small_bundles[kind], place / kind, name))
    return made.path


@pytest.fixture
def service(folder: Path, tmp_path: Path) -> Iterator[Any]:
    models = models_of(folder)
    models.refresh()
    opened = service_of(tmp_path / "serve.db", models, drift_window=200)
    yield opened
    opened.store.close()


def finished(count: int, **changes: Any) -> list[Finished]:
    """Return jobs with a p50 of 100 s and a p90 of 200 s; nine of ten ran for 60 s to 150 s, one for 400 s."""
    run_s = [400.0 if i % 10 == 0 else (60.0, 100.0, 150.0)[i % 3] for i in range(count)]
    base = replace(JOB, run_time_model=f"{NAME}@7", usage_model=f"{USAGE}@7", p50_s=100.0, p90_s=200.0, **changes)
    return [replace(base, job_id=f"j{i}", run_s=each) for i, each in enumerate(run_s)]


def told(service: Any, name: str = NAME, caller: Caller = ANYONE) -> ModelDrift:
    [model] = [each for each in service.read_drift(caller).models if each.name == name]
    return model


def test_errors_alone_read_no_answers(service: Any) -> None:
    insert_finished(service.store, finished(100))
    with service.store.writing("taking the answers away") as connection:
        connection.execute(text("DROP TABLE taut_answers"))

    errors = service.champion_errors()

    assert list(errors) == [NAME]
    assert (errors[NAME].jobs, errors[NAME].expected_mean_absolute_log) == (100, 0.5)
    assert errors[NAME].mean_absolute_log is not None


def test_nothing_is_said_of_what_nobody_reported(service: Any) -> None:
    answer = service.read_drift(ANYONE)

    assert [(each.name, each.verdict) for each in answer.models] == [(NAME, "unknown"), (USAGE, "unknown")]
    assert answer.window == 200


def test_a_model_that_keeps_its_word_is_ok(service: Any) -> None:
    insert_finished(service.store, finished(200))

    model = told(service)

    [p90] = model.coverage
    assert (p90.of, p90.jobs, p90.observed, p90.expected, p90.verdict) == ("p90", 200, 0.9, 0.9, "ok")
    assert p90.standard_error == pytest.approx((0.9 * 0.1 / 200) ** 0.5)
    assert model.error is not None
    assert model.error.median_log == pytest.approx(0.0)
    assert model.error.expected_mean_absolute_log == pytest.approx(0.5)
    assert (model.error.verdict, model.verdict) == ("ok", "ok")


@pytest.mark.parametrize(
    ("p50_s", "p90_s", "coverage", "error"),
    [(100.0, 120.0, "drifted", "ok"), (20.0, 500.0, "drifted", "drifted"), (60.0, 200.0, "ok", "watch")],
)
def test_a_model_that_went_wrong_is_found_out(
    service: Any, p50_s: float, p90_s: float, coverage: str, error: str
) -> None:
    insert_finished(service.store, [replace(job, p50_s=p50_s, p90_s=p90_s) for job in finished(200)])

    model = told(service)

    assert model.coverage[0].verdict == coverage
    assert model.error is not None
    assert model.error.verdict == error
    assert model.verdict == max(coverage, error, key=["ok", "watch", "drifted"].index)


def test_only_the_last_jobs_of_this_version_count(service: Any) -> None:
    wrong = [replace(job, job_id=f"old-{job.job_id}", p50_s=5.0, p90_s=6.0) for job in finished(300)]
    other = [replace(job, job_id=f"v6-{job.job_id}", p90_s=6.0, run_time_model=f"{NAME}@6") for job in finished(100)]
    insert_finished(service.store, wrong)
    insert_finished(service.store, finished(200))
    insert_finished(service.store, other)

    assert told(service).verdict == "ok"


def test_what_is_only_a_lower_bound_is_no_error(service: Any) -> None:
    insert_finished(service.store, finished(200, outcome="timeout"))

    assert told(service).coverage[0].jobs == 0
    assert told(service).verdict == "unknown"


def test_use_is_judged_by_jobs_that_could_use_what_they_wanted(service: Any) -> None:
    over = finished(100, mem_max_gib=12.0, peak_mem_gib=9.0)
    insert_finished(service.store, over)
    assert {each.of: each.verdict for each in told(service, USAGE).coverage}["mem_gib"] == "drifted"

    shrunk = [replace(job, job_id=f"s-{job.job_id}", alloc_mem_gib=12.0) for job in finished(200, mem_max_gib=12.0)]
    insert_finished(service.store, shrunk)
    coverage = {each.of: each for each in told(service, USAGE).coverage}
    assert (coverage["mem_gib"].jobs, coverage["mem_gib"].verdict) == (0, "unknown")
    assert (coverage["cpu_cores"].jobs, coverage["cpu_cores"].verdict) == (200, "ok")


def test_tenants_are_judged_by_their_own(service: Any) -> None:
    west = [replace(job, job_id=f"w-{job.job_id}", cluster="west", p90_s=6.0) for job in finished(100)]
    insert_finished(service.store, west)
    insert_finished(service.store, finished(60))

    model = told(service, caller=EAST)

    assert (model.coverage[0].jobs, model.coverage[0].verdict) == (60, "ok")
    nobody = Caller(name="n", scopes=frozenset({Scope.PREDICT}), traces=frozenset({"philly"}))
    assert service.read_drift(nobody).models == ()


@pytest.mark.parametrize(("asked", "found"), [({"trace": "pai"}, 2), ({"trace": "x"}, 0), ({"task_type": "nlp"}, 0)])
def test_models_are_chosen_by_trace_and_type(service: Any, asked: dict[str, str], found: int) -> None:
    assert len(service.read_drift(ANYONE, **asked).models) == found
