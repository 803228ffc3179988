"""`FeatureContract`: what travels with a model, and what it refuses."""

import hashlib
import json
from collections.abc import Callable

import numpy as np
import polars as pl
import pytest
from hypothesis import given, settings

from features.build import build
from features.contract import FeatureContract
from features.errors import ContractError
from features.history import History
from tests.examples import examples
from tests.features.job_tables import job_tables

FRAME = pl.DataFrame(
    {"req_gpus": [1.0, None, 0.5], "vc": ["b", None, "a"], "total_gpus": [0.25, 3.0, 9.5]},
    schema={"req_gpus": pl.Float64, "vc": pl.String, "total_gpus": pl.Float64},
)


def test_encode_orders_codes_and_marks_unknown() -> None:
    contract = FeatureContract.fit(FRAME, ["vc", "req_gpus"])
    unseen = FRAME.with_columns(vc=pl.Series(["a", "new", None]))

    found = contract.encode(unseen)

    np.testing.assert_array_equal(found, np.array([[0, 1], [np.nan, np.nan], [np.nan, 0.5]], dtype=np.float32))
    assert found.dtype == np.float32
    assert found.flags.c_contiguous
    assert contract.kinds == ("c", "q")
    assert contract.categories == {"vc": ("a", "b")}
    assert contract.units == ("", "GPUs")


def test_a_contract_survives_json() -> None:
    contract = FeatureContract.fit(FRAME)

    read = FeatureContract.from_json(contract.to_json())

    assert read == contract
    assert read.fingerprint == contract.fingerprint
    np.testing.assert_array_equal(read.encode(FRAME), contract.encode(FRAME))


def test_the_fingerprint_follows_the_content() -> None:
    one = FeatureContract.fit(FRAME)

    assert one.fingerprint == FeatureContract.fit(FRAME.reverse()).fingerprint
    assert one.fingerprint != FeatureContract.fit(FRAME, ["total_gpus", "vc", "req_gpus"]).fingerprint
    assert one.fingerprint != FeatureContract.fit(FRAME.filter(pl.col("vc") == "a")).fingerprint


def _renamed(stored: dict[str, object]) -> None:
    stored["names"] = ["req_gpus", "vc", "instances"]


def _another_category(stored: dict[str, object]) -> None:
    stored["categories"] = {"vc": ["a", "z"]}


def _less(stored: dict[str, object]) -> None:
    del stored["units"]


def _no_lists(stored: dict[str, object]) -> None:
    stored["names"] = None


@pytest.mark.parametrize("change", [_renamed, _another_category, _less, _no_lists])
def test_a_changed_contract_is_refused(change: Callable[[dict[str, object]], None]) -> None:
    stored = json.loads(FeatureContract.fit(FRAME).to_json())
    change(stored)

    with pytest.raises(ContractError):
        FeatureContract.from_json(json.dumps(stored))


@pytest.mark.parametrize("text", ["", "[]", "{", "null"])
def test_what_is_no_contract_is_refused(text: str) -> None:
    with pytest.raises(ContractError, match="contract: found"):
        FeatureContract.from_json(text)


def test_a_contract_of_another_version_is_refused() -> None:
    stored = json.loads(FeatureContract.fit(FRAME).to_json())
    content = {name: value for name, value in stored.items() if name != "fingerprint"} | {"units": ["cores", "", "h"]}
    text = json.dumps(content, sort_keys=True, separators=(",", ":"))

    with pytest.raises(ContractError, match="other types or units"):
        FeatureContract.from_json(json.dumps({**content, "fingerprint": hashlib.sha256(text.encode()).hexdigest()}))


@pytest.mark.parametrize(
    ("frame", "error"),
    [
        (FRAME.drop("vc"), "found no vc"),
        (FRAME.with_columns(pl.col("total_gpus").cast(pl.Int64)), r"total_gpus as Int64 \(expected Float64\)"),
    ],
)
def test_a_frame_that_does_not_fit_is_refused(frame: pl.DataFrame, error: str) -> None:
    contract = FeatureContract.fit(FRAME)

    with pytest.raises(ContractError, match=error):
        contract.encode(frame)


@settings(max_examples=examples(20), deadline=None)
@given(jobs=job_tables(max_size=20))
def test_a_built_frame_fits_its_contract_row_by_row(jobs: pl.DataFrame) -> None:
    frame = build(jobs, History.of(jobs), "usage")
    contract = FeatureContract.fit(frame)

    whole = contract.encode(frame)

    assert whole.shape == (jobs.height, len(contract.names))
    np.testing.assert_array_equal(np.vstack([contract.encode(frame[i : i + 1]) for i in range(jobs.height)]), whole)
    assert not np.isinf(whole).any()
