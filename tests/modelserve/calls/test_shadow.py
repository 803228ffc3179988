import json
import math
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import numpy as np
import pytest

from modelserve.callers import ANYONE
from modelserve.calls import shadow as shadow_module
from modelserve.calls.shadow import Shadow
from modelserve.contract.calls import PREDICT, RECOMMEND
from modelserve.contract.requests import PredictBody, RecommendBody
from modelserve.service import Service
from modelserve.store.answers import Comparison
from tests.modelserve.answering import NOW, folder_of, job, mixed, service_of
from tests.modelserve.mirrored import NAME

LIMIT_S = 10.0


def check_soon(holds: Callable[[], bool]) -> None:
    deadline = time.monotonic() + LIMIT_S
    while not holds():
        assert time.monotonic() < deadline
        time.sleep(0.005)


@pytest.fixture
def kept() -> list[Sequence[Comparison]]:
    return []


@pytest.fixture
def shadow(kept: list[Sequence[Comparison]]) -> Iterator[Shadow]:
    made = Shadow(kept.append)
    yield made
    made.stop()


@pytest.fixture
def service(small_bundles: dict[str, Path], other_version: Path, tmp_path: Path, shadow: Shadow) -> Service:
    folder = folder_of(tmp_path, small_bundles)
    folder.add(NAME, "8", "challenger", source=other_version)
    return service_of(folder.path, shadow=shadow)


def predict(service: Service, jobs: list[dict[str, object]]) -> bytes:
    return service.decide(PREDICT, PredictBody.model_validate({"jobs": jobs}), ANYONE, answer_id="p").body


def test_a_challenger_is_compared_and_never_returned(service: Service, kept: list[Sequence[Comparison]]) -> None:
    body = predict(service, mixed(14))

    check_soon(lambda: len(kept) == 1)
    assert b"@8" not in body
    assert len(kept[0]) == 10
    [first, *_] = kept[0]
    assert (first.answer_id, first.at, first.job_id) == ("p", NOW, "a0")
    assert (first.champion, first.challenger) == (f"{NAME}@7", f"{NAME}@8")
    assert first.p50_s == json.loads(body)["predictions"][0]["run_time_s"]["p50"]
    ratios = [math.log(each.challenger_p50_s / each.p50_s) for each in kept[0]]
    # The challenger's offset is 0.5 above the champion's at p50, and sorting may take some of it.
    assert np.mean(ratios) == pytest.approx(0.5, abs=0.3)


def test_the_first_jobs_of_a_large_answer_are_compared(
    service: Service, kept: list[Sequence[Comparison]], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(shadow_module, "STORED", 3)

    predict(service, mixed(14))
    check_soon(lambda: len(kept) == 1)
    monkeypatch.undo()
    predict(service, mixed(14))
    check_soon(lambda: len(kept) == 2)

    assert len(kept[0]) == 3
    assert kept[0] == kept[1][:3]


def test_recommendations_are_compared_at_the_request(service: Service, kept: list[Sequence[Comparison]]) -> None:
    service.decide(RECOMMEND, RecommendBody.model_validate({"jobs": [job()]}), ANYONE, answer_id="r")
    predict(service, [job()])

    check_soon(lambda: len(kept) == 2)
    assert [each.challenger_p50_s for each in kept[0]] == [each.challenger_p50_s for each in kept[1]]


def test_answers_are_the_same_with_and_without_a_challenger(
    service: Service, small_bundles: dict[str, Path], tmp_path_factory: pytest.TempPathFactory
) -> None:
    alone = service_of(folder_of(tmp_path_factory.mktemp("alone"), small_bundles).path)

    assert predict(service, mixed(9)) == predict(alone, mixed(9))


def test_without_a_challenger_nothing_starts(small_bundles: dict[str, Path], tmp_path: Path, shadow: Shadow) -> None:
    before = threading.active_count()

    predict(service_of(folder_of(tmp_path, small_bundles).path, shadow=shadow), mixed(3))

    assert threading.active_count() == before


def test_a_slow_store_holds_up_no_answer_and_what_does_not_fit_is_dropped(
    service: Service, monkeypatch: pytest.MonkeyPatch
) -> None:
    stuck, begun = threading.Event(), threading.Event()

    def wait(_: object) -> None:
        begun.set()
        stuck.wait(LIMIT_S)

    monkeypatch.setattr(shadow_module, "WAITING_JOBS", 5)
    blocked = Shadow(wait)
    object.__setattr__(service, "shadow", blocked)
    predict(service, [job()])
    assert begun.wait(LIMIT_S)

    for _ in range(20):
        predict(service, [job()])

    assert blocked.dropped == 16
    stuck.set()
    blocked.stop()


def test_a_challenger_that_fails_is_passed_over(
    service: Service, kept: list[Sequence[Comparison]], caplog: pytest.LogCaptureFixture
) -> None:
    challenger = service.models.current.challengers[NAME]
    trees = dict(challenger.bundle.forests)
    challenger.bundle.forests.clear()  # type: ignore[attr-defined]
    with caplog.at_level("WARNING"):
        predict(service, [job()])
        check_soon(lambda: "comparison with" in caplog.text)
    challenger.bundle.forests.update(trees)  # type: ignore[attr-defined]
    predict(service, [job()])

    check_soon(lambda: len(kept) == 1)
    assert kept[0][0].challenger_p50_s > 0
