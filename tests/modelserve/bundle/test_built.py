from dataclasses import replace

import numpy as np
import pytest
from polars.testing import assert_frame_equal

from features.build import build, with_requests
from features.references import build_referenced
from modelserve.bundle import built as built_module
from modelserve.bundle import run_times
from modelserve.bundle.built import Built, LastBuilt, candidate_rows, jobs_frame
from modelserve.bundle.bundle import Bundle
from modelserve.bundle.predictor import InProcessPredictor
from scheduler_core.types import Job, PeakUse, RunTimes
from tests.modelserve.bundle.test_predictor import JOBS, candidates

OURS = [job for job in JOBS if job.trace == "pai"]
RUNTIME, USAGE = "runtime.pai.ctr", "usage.pai.ctr"


def check_same(found: RunTimes | PeakUse, expected: RunTimes | PeakUse) -> None:
    for name in type(expected).__slots__:
        assert getattr(found, name).tobytes() == getattr(expected, name).tobytes(), name


def test_rows_of_candidates_are_the_encoding_of_their_features_to_the_bit(bundles: dict[str, Bundle]) -> None:
    bundle = bundles[RUNTIME]
    frame = jobs_frame(OURS, bundle.history)
    seen = build_referenced(frame, bundle.history, bundle.contract.names, relative=bundle.card.relative).features
    rng = np.random.default_rng(3)
    rows = rng.integers(0, len(OURS), 60)
    requests = rng.choice([0.0, 0.5, 6.0, 29.3, np.nan], (60, 3))

    found = candidate_rows(bundle.contract, seen, frame, rows, requests)

    np.testing.assert_array_equal(found, bundle.contract.encode(with_requests(seen, frame, rows, requests)))
    assert found.dtype == np.float32
    assert (found != bundle.contract.encode(seen)[rows]).any()


@pytest.mark.parametrize("relative", [True, False])
@pytest.mark.parametrize("before", [(), ("req_gpus", "like_run_s_p50_100"), "all"])
def test_what_was_built_before_changes_nothing(
    bundles: dict[str, Bundle], before: tuple[str, ...] | str, relative: bool
) -> None:
    bundle = bundles[RUNTIME]
    names = bundle.contract.names
    known = bundles[USAGE].contract.names if isinstance(before, str) else before

    found = Built.of(OURS, bundle.history).with_features(known).referenced(names, relative=relative)

    expected = build_referenced(jobs_frame(OURS, bundle.history), bundle.history, names, relative=relative)
    assert_frame_equal(found.features, expected.features, check_exact=True)
    assert_frame_equal(found.plain, expected.plain, check_exact=True)
    assert found.reference_log_s.tobytes() == expected.reference_log_s.tobytes()


def test_run_times_after_peak_use_are_those_asked_alone(bundles: dict[str, Bundle]) -> None:
    asked, alone = InProcessPredictor(bundles=bundles), InProcessPredictor(bundles=bundles)

    asked.peak_use(JOBS)

    check_same(asked.run_times(JOBS, *candidates()), alone.run_times(JOBS, *candidates()))
    check_same(asked.run_times(JOBS, *candidates()), alone.run_times(JOBS, *candidates()))


def test_run_times_of_other_jobs_are_their_own(bundles: dict[str, Bundle]) -> None:
    predictor = InProcessPredictor(bundles=bundles)
    others = [replace(job, user="u1", group="g2", submit_ts=job.submit_ts + 5000.0) for job in JOBS]

    predictor.peak_use(JOBS)

    found = predictor.run_times(others, *candidates())
    check_same(found, InProcessPredictor(bundles=bundles).run_times(others, *candidates()))
    assert found.p50.tobytes() != predictor.run_times(JOBS, *candidates()).p50.tobytes()


def test_features_of_a_round_are_built_once(bundles: dict[str, Bundle], monkeypatch: pytest.MonkeyPatch) -> None:
    history = bundles[RUNTIME].history
    shared = {name: replace(bundle, history=history) for name, bundle in bundles.items()}
    predictor = InProcessPredictor(bundles=shared)
    names: list[str] = []

    def counted(frame: object, history: object, asked: list[str]) -> object:
        names.extend(asked)
        return build(frame, history, asked)  # type: ignore[arg-type]  # what was asked for

    monkeypatch.setattr(built_module, "build", counted)
    predictor.peak_use(JOBS)
    predictor.run_times(JOBS, *candidates())

    assert set(bundles[RUNTIME].contract.names) <= set(names)
    assert len(names) == len(set(names))


def test_what_is_kept_is_of_the_very_jobs_and_history_and_is_taken_once(bundles: dict[str, Bundle]) -> None:
    history = bundles[RUNTIME].history
    built = Built.of(OURS, history).with_features(["req_gpus"])
    last = LastBuilt()

    last.keep([built])

    equal = [replace(job) for job in OURS]
    other = replace(bundles[RUNTIME].history)
    assert equal == OURS
    for jobs, past in ((equal, history), (OURS[:-1], history), (OURS[::-1], history), (OURS, other)):
        assert last.take(jobs, past).features.width == 0
    assert last.take(list(OURS), history) is built
    assert last.take(OURS, history) is not built


def test_what_is_too_much_is_not_kept(bundles: dict[str, Bundle], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(built_module, "KEPT_JOBS", len(OURS) - 1)
    last = LastBuilt()

    last.keep([Built.of(OURS, bundles[RUNTIME].history)])

    assert last.kept == ()


def test_compiled_trees_answer_many_rows_as_the_library_does(
    bundles: dict[str, Bundle], monkeypatch: pytest.MonkeyPatch
) -> None:
    predictor = InProcessPredictor(bundles=bundles)
    jobs: list[Job] = [*JOBS, *OURS]
    library = predictor.run_times(jobs, *candidates()), predictor.peak_use(jobs)

    monkeypatch.setattr(run_times, "COMPILED_ROWS", 0)
    monkeypatch.setattr(run_times, "raw_outputs", lambda *_: pytest.fail("the library was asked"))

    check_same(predictor.run_times(jobs, *candidates()), library[0])
    check_same(predictor.peak_use(jobs), library[1])


def test_models_that_were_never_a_file_answer_too(bundles: dict[str, Bundle], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(run_times, "COMPILED_ROWS", 0)
    unwritten = {name: replace(bundle, forests={}) for name, bundle in bundles.items()}

    found = InProcessPredictor(bundles=unwritten).run_times(JOBS, *candidates())

    check_same(found, InProcessPredictor(bundles=bundles).run_times(JOBS, *candidates()))
