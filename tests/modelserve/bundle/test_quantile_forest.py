"""The quantile forest: against a walk in plain Python, and files that it refuses to read."""

import json
from collections.abc import Callable
from functools import cache

import numpy as np
import numpy.typing as npt
import pytest
import xgboost as xgb
from hypothesis import given, settings
from hypothesis import strategies as st

from modelserve.bundle.boosters import VALUES_PER_LEAF, QuantileForest, read_quantile_forest
from modelserve.errors import BundleError
from tests.examples import examples

FEATURES = 3


@cache
def trees(objective: str = "reg:squarederror", *, outputs: int = 1, features: int = FEATURES) -> xgb.Booster:
    """Return a few trees whose splits have a default way for missing values."""
    rng = np.random.default_rng(6)
    matrix = rng.normal(size=(400, features)).astype(np.float32).round(1)
    matrix[rng.random(matrix.shape) < 0.3] = np.nan
    target = np.nan_to_num(matrix[:, 0]) + np.isnan(matrix[:, 1]) + rng.normal(0.0, 0.2, 400)
    params = {"objective": objective, "num_parallel_tree": 5, "subsample": 0.7, "max_depth": 4, "nthread": 1, "seed": 1}
    if outputs > 1:
        params["quantile_alpha"] = [0.5, 0.9]
    return xgb.train(params, xgb.DMatrix(matrix, target, nthread=1), num_boost_round=1)


def raw(booster: xgb.Booster) -> bytes:
    return bytes(booster.save_raw("ubj"))


def nodes(booster: xgb.Booster) -> list[dict[str, list]]:
    """Return the trees as XGBoost writes them in JSON."""
    return json.loads(booster.save_raw("json"))["learner"]["gradient_booster"]["model"]["trees"]


def leaves(booster: xgb.Booster) -> list[tuple[int, int]]:
    """Return every leaf as its tree and its node, in order."""
    return [
        (number, node)
        for number, tree in enumerate(nodes(booster))
        for node, left in enumerate(tree["left_children"])
        if left == -1
    ]


def values_of(booster: xgb.Booster, seed: int = 2) -> npt.NDArray[np.float32]:
    return np.random.default_rng(seed).normal(size=(len(leaves(booster)), VALUES_PER_LEAF)).astype(np.float32)


def saved(values: npt.NDArray[np.generic]) -> bytes:
    return values.tobytes()


def pooled(booster: xgb.Booster, values: npt.NDArray[np.float32], row: npt.NDArray[np.float32]) -> list[float]:
    """Return the values of the leaves that a row reaches, by walking the trees one node at a time."""
    rank = {leaf: place for place, leaf in enumerate(leaves(booster))}
    found: list[float] = []
    for number, tree in enumerate(nodes(booster)):
        node = 0
        while tree["left_children"][node] != -1:
            value = row[tree["split_indices"][node]]
            left = tree["default_left"][node] if np.isnan(value) else value < np.float32(tree["split_conditions"][node])
            node = tree["left_children" if left else "right_children"][node]
        found += values[rank[number, node]].tolist()
    return found


def forest() -> QuantileForest:
    return read_quantile_forest(raw(trees()), saved(values_of(trees())), features=FEATURES, name="models/forest")


NUMBERS = st.one_of(st.just(float("nan")), st.integers(-30, 30).map(lambda tenths: tenths / 10), st.floats(width=32))


@settings(max_examples=examples(60), deadline=None)
@given(rows=st.lists(st.tuples(*[NUMBERS] * FEATURES), min_size=1, max_size=6))
def test_quantiles_are_those_of_the_values_that_a_plain_walk_finds(rows: list[tuple[float, ...]]) -> None:
    matrix = np.array(rows, dtype=np.float32)

    found = forest().rows(matrix)

    expected = [np.quantile(pooled(trees(), values_of(trees()), row), (0.5, 0.9)) for row in matrix]
    assert found == pytest.approx(np.array(expected), abs=1e-6)


def categorical() -> xgb.Booster:
    matrix = np.tile(np.arange(8, dtype=np.float32), 50).reshape(-1, 1)
    kinds = {"feature_types": ["c", "q", "q"], "enable_categorical": True, "nthread": 1}
    rows = xgb.DMatrix(np.hstack([matrix, matrix, matrix]), matrix[:, 0] % 3, **kinds)
    return xgb.train({"max_depth": 3, "colsample_bytree": 1.0, "nthread": 1}, rows, 1)


def no_trees() -> xgb.Booster:
    return xgb.train({"nthread": 1}, xgb.DMatrix(np.zeros((2, FEATURES)), np.zeros(2), nthread=1), 0)


TREES_REFUSED: dict[str, tuple[Callable[[], bytes], str]] = {
    "another number of features": (lambda: raw(trees(features=FEATURES + 1)), "numeric splits on 3 features"),
    "categories": (lambda: raw(categorical()), "numeric splits on 3 features"),
    "two outputs": (lambda: raw(trees("reg:quantileerror", outputs=2)), "numeric splits on 3 features"),
    "no trees": (lambda: raw(no_trees()), "numeric splits on 3 features"),
    "half a file": (lambda: raw(trees())[:-40], ""),
    "no model": (lambda: b"\x80\x04pickled", ""),
    "nothing": (lambda: b"", ""),
}


@pytest.mark.parametrize("kind", TREES_REFUSED)
def test_other_trees_are_refused(kind: str) -> None:
    made, said = TREES_REFUSED[kind]

    with pytest.raises(BundleError, match=rf"^models/forest\.ubj: .*{said}"):
        read_quantile_forest(made(), saved(values_of(trees())), features=FEATURES, name="models/forest")


def with_one(value: float) -> bytes:
    values = values_of(trees())
    values[-1, -1] = value
    return saved(values)


def good() -> npt.NDArray[np.float32]:
    return values_of(trees())


VALUES_REFUSED: dict[str, tuple[Callable[[], bytes], str]] = {
    "one leaf less": (lambda: saved(good()[:-1]), "bytes, expected"),
    "one leaf more": (lambda: saved(np.vstack([good(), good()[:1]])), "bytes, expected"),
    "one value less": (lambda: saved(good()[:, :-1]), "bytes, expected"),
    "one byte less": (lambda: saved(good())[:-1], "bytes, expected"),
    "float64": (lambda: saved(good().astype(np.float64)), "bytes, expected"),
    "not a number": (lambda: with_one(np.nan), "not finite"),
    "infinite": (lambda: with_one(-np.inf), "not finite"),
    "a pickle": (lambda: b"\x80\x04K\x01.", "found 5 bytes, expected"),
    "nothing": (lambda: b"", "found 0 bytes, expected"),
}


@pytest.mark.parametrize("kind", VALUES_REFUSED)
def test_other_values_are_refused(kind: str) -> None:
    made, said = VALUES_REFUSED[kind]

    with pytest.raises(BundleError, match=rf"^models/forest\.f32: .*{said}.*; train again$"):
        read_quantile_forest(raw(trees()), made(), features=FEATURES, name="models/forest")
