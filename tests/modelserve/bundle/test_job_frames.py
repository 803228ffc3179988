from dataclasses import replace

import numpy as np
import pytest

from features.build import with_requests
from features.references import build_referenced
from modelserve.bundle import run_times
from modelserve.bundle.bundle import Bundle
from modelserve.bundle.job_frames import candidate_rows, jobs_frame
from modelserve.bundle.predictor import InProcessPredictor
from scheduler_core.types import Job, PeakUse, RunTimes
from tests.modelserve.bundle.test_predictor import JOBS, candidates

OURS = [job for job in JOBS if job.trace == "pai"]
RUNTIME = "runtime.pai.ctr"


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
