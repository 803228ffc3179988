import numpy as np

from features.build import with_requests
from features.references import build_referenced
from modelserve.bundle.bundle import Bundle
from modelserve.bundle.predictor import candidate_rows, jobs_frame
from scheduler_core.types import PeakUse, RunTimes
from tests.modelserve.bundle.test_predictor import JOBS

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
