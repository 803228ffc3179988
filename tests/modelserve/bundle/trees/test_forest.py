import struct
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import xgboost as xgb
from hypothesis import given, settings
from hypothesis import strategies as st

from modelserve.bundle.boosters import load_booster
from modelserve.bundle.trees.compiled import tree_outputs
from modelserve.bundle.trees.forest import CATEGORY_WORDS_LIMIT, read_forest
from modelserve.bundle.trees.ubjson import DEPTH_LIMIT, read_ubjson
from modelserve.errors import BundleError
from tests.examples import examples
from tests.modelserve.ubj_writing import write_ubjson

FEATURES = 4


def train() -> bytes:
    rng = np.random.default_rng(3)
    rows = rng.normal(size=(300, FEATURES)).astype(np.float32)
    rows[:, 1] = rng.integers(0, 40, 300)
    aim = rows[:, 0] + np.isin(rows[:, 1], [2, 5, 33]) * 4
    data = xgb.DMatrix(rows, aim, feature_types=["q", "c", "q", "q"], enable_categorical=True, nthread=1)
    params = {"max_depth": 3, "nthread": 1, "objective": "reg:quantileerror", "quantile_alpha": [0.5, 0.9]}
    return bytes(xgb.train(params, data, 3).save_raw("ubj"))


MODEL = train()


def changed(change: Callable[[Any], None]) -> bytes:
    file = read_ubjson(MODEL)
    change(file)
    return write_ubjson(file)


def trees_of(file: Any) -> list[Any]:
    return file["learner"]["gradient_booster"]["model"]["trees"]


def put(key: str, at: int, value: float, *, tree: int = 0) -> Callable[[Any], None]:
    def change(file: Any) -> None:
        array = trees_of(file)[tree][key].copy()
        array[at] = value
        trees_of(file)[tree][key] = array

    return change


def say(path: str, value: object) -> Callable[[Any], None]:
    def change(file: Any) -> None:
        *parents, last = path.split("/")
        place = file
        for part in parents:
            place = place[int(part)] if part.isdigit() else place[part]
        place[int(last) if last.isdigit() else last] = value

    return change


def shorten(key: str) -> Callable[[Any], None]:
    def change(file: Any) -> None:
        trees_of(file)[0][key] = trees_of(file)[0][key][:-1]

    return change


def categorical(file: Any) -> Any:
    return next(tree for tree in trees_of(file) if len(tree["categories_nodes"]))


def put_category(key: str, value: int) -> Callable[[Any], None]:
    def change(file: Any) -> None:
        tree = categorical(file)
        array = tree[key].copy()
        array[0] = value
        tree[key] = array

    return change


def put_in_split(file: Any) -> None:
    tree = categorical(file)
    flags = tree["split_type"].copy()
    flags[tree["categories_nodes"][0]] = 0
    tree["split_type"] = flags


BOOSTER = "learner/gradient_booster"
WHOLE = f"{BOOSTER}/model"
ABSURD: dict[str, Callable[[Any], None]] = {
    "split on a feature too far": put("split_indices", 0, FEATURES),
    "split on a feature below none": put("split_indices", 0, -1),
    "split on a feature far away": put("split_indices", 0, 2**31 - 1),
    "child of itself": put("left_children", 0, 0),
    "child before its parent": put("left_children", 1, 0),
    "child outside": put("left_children", 0, 2**31 - 1),
    "child below none": put("left_children", 0, -7),
    "one child only": put("right_children", 0, -1),
    "children apart": put("right_children", 0, 4),
    "children shared": put("left_children", 1, 1),
    "parent elsewhere": put("parents", 2, 1),
    "root with a parent": put("parents", 0, 3),
    "leaf that is no number": put("split_conditions", -1, np.nan),
    "leaf without end": put("split_conditions", -1, np.inf),
    "statistic without end": put("sum_hessian", 0, np.inf),
    "statistic below none": put("sum_hessian", 0, -1.0),
    "flag above one": put("default_left", 0, 7),
    "split of a third type": put("split_type", 0, 2),
    "categorical without a set": put("split_type", -1, 1),
    "set without a split": put_in_split,
    "nodes missing": shorten("left_children"),
    "weights missing": shorten("base_weights"),
    "set of a node outside": put_category("categories_nodes", 10_000),
    "set of a node below none": put_category("categories_nodes", -1),
    "set that begins outside": put_category("categories_segments", 10_000),
    "set that ends outside": put_category("categories_sizes", 10_000),
    "set without a category": put_category("categories_sizes", 0),
    "category below none": put_category("categories", -1),
    "category far away": put_category("categories", 2**31 - 1),
    "sets too large": put_category("categories", 32 * CATEGORY_WORDS_LIMIT),
    "output outside": say(f"{WHOLE}/tree_info/0", 2),
    "output below none": say(f"{WHOLE}/tree_info/0", -1),
    "outputs missing": say(f"{WHOLE}/tree_info", [0, 1]),
    "rounds outside": say(f"{WHOLE}/iteration_indptr/3", 700),
    "no rounds": say(f"{WHOLE}/iteration_indptr", []),
    "trees that are not there": say(f"{WHOLE}/gbtree_model_param/num_trees", "7"),
    "ids twice": say(f"{WHOLE}/trees/1/id", 0),
    "id outside": say(f"{WHOLE}/trees/1/id", 1 << 40),
    "no nodes": say(f"{WHOLE}/trees/0/tree_param/num_nodes", "0"),
    "nodes below none": say(f"{WHOLE}/trees/0/tree_param/num_nodes", "-1"),
    "deleted nodes": say(f"{WHOLE}/trees/0/tree_param/num_deleted", "1"),
    "leaf vectors": say(f"{WHOLE}/trees/0/tree_param/size_leaf_vector", "2"),
    "leaf vectors below none": say(f"{WHOLE}/trees/0/tree_param/size_leaf_vector", "-1"),
    "categories inside": say(f"{WHOLE}/cats/enc", [{}]),
    "no base": say("learner/learner_model_param/base_score", "[]"),
    "base that is no number": say("learner/learner_model_param/base_score", "[NaN,0]"),
    "base that is no list": say("learner/learner_model_param/base_score", "{"),
    "outputs that are no number": say("learner/learner_model_param/num_target", "two"),
    "no names": say("learner/feature_names", ["a"]),
    "another objective": say("learner/objective/name", "binary:logistic"),
    "another booster": say(f"{BOOSTER}/name", "dart"),
    "another kind of file": say("learner", []),
    "an old file": say("version", [1, 0, 0]),
    "no version": say("version", []),
}


def test_a_sound_model_is_read() -> None:
    forest = read_forest(MODEL, name="m")

    assert (forest.features, forest.outputs, len(forest.root)) == (FEATURES, 2, 6)
    assert write_ubjson(read_ubjson(MODEL)) == MODEL, "what the tests change is otherwise as XGBoost wrote it"


@pytest.mark.parametrize("change", ABSURD.values(), ids=ABSURD)
def test_a_model_that_leads_outside_is_refused_before_the_library_sees_it(
    change: Callable[[Any], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    data = changed(change)
    assert data != MODEL
    monkeypatch.setattr("modelserve.bundle.boosters.lean_xgboost", lambda: pytest.fail("the library was asked"))

    with pytest.raises(BundleError, match=r"^m: .*expected"):
        load_booster(data, features=FEATURES, outputs=2, name="m")


def test_a_tree_too_deep_is_refused() -> None:
    def change(file: Any) -> None:
        depth = 70
        nodes = 2 * depth + 1
        left = np.full(nodes, -1, np.int32)
        left[0], left[1 : nodes - 2 : 2] = 1, np.arange(3, nodes, 2)
        right = np.where(left < 0, -1, left + 1).astype(np.int32)
        parents = np.full(nodes, 2**31 - 1, np.int32)
        for node in np.flatnonzero(left >= 0):
            parents[left[node]] = parents[left[node] + 1] = node
        tree = trees_of(file)[0]
        tree["tree_param"]["num_nodes"] = str(nodes)
        tree |= {"left_children": left, "right_children": right, "parents": parents}
        tree |= {key: np.zeros(nodes, np.float32) for key in ("split_conditions", "base_weights", "loss_changes")}
        tree |= {"sum_hessian": np.ones(nodes, np.float32), "split_indices": np.zeros(nodes, np.int32)}
        tree |= {key: np.zeros(nodes, np.uint8) for key in ("default_left", "split_type")}
        tree |= {key: np.zeros(0, np.int32) for key in ("categories", "categories_nodes")}
        tree |= {key: np.zeros(0, np.int64) for key in ("categories_segments", "categories_sizes")}

    with pytest.raises(BundleError, match="deeper than"):
        read_forest(changed(change), name="m")


@pytest.mark.parametrize("length", [0, 1, 2, 63, 64, 500, len(MODEL) // 2, len(MODEL) - 2, len(MODEL) - 1])
def test_a_model_cut_short_is_refused(length: int) -> None:
    with pytest.raises(BundleError):
        read_forest(MODEL[:length], name="m")


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"null",
        b"[" * 100_000,
        (b"{L" + struct.pack(">q", 1) + b"a") * 100_000,
        (b"[#L" + struct.pack(">q", 1)) * (DEPTH_LIMIT + 2) + b"Z",
        b"[#L" + struct.pack(">q", 2**62),
        b"[#L" + struct.pack(">q", -1),
        b"[$d#L" + struct.pack(">q", 2**61),
        b"SL" + struct.pack(">q", 2**63 - 1) + b"x",
        b"SL" + struct.pack(">q", 1) + b"\xff",
        b"{" + (b"L" + struct.pack(">q", 1) + b"ai\x01") * 2 + b"}",
        MODEL + b"}",
        b"\x80\x04K\x01.",
    ],
    ids=lambda data: repr(data[:12]),
)
def test_bytes_that_are_no_model_are_refused(data: bytes) -> None:
    with pytest.raises(BundleError):
        read_ubjson(data)


@settings(max_examples=examples(300), deadline=None)
@given(st.lists(st.tuples(st.integers(0, len(MODEL) - 1), st.integers(0, 255)), min_size=1, max_size=4))
def test_no_byte_that_changes_makes_the_walk_leave_its_arrays(changes: list[tuple[int, int]]) -> None:
    data = bytearray(MODEL)
    for at, value in changes:
        data[at] = value
    try:
        forest = read_forest(bytes(data), name="m")
    except BundleError:
        return

    rows = np.random.default_rng(0).normal(scale=20, size=(30, forest.features)).astype(np.float32)
    answers = tree_outputs(forest, rows)

    assert answers.shape == (30, forest.outputs)
    inner = forest.left >= 0
    assert (forest.left[inner] > np.flatnonzero(inner)).all()
    assert (forest.left[inner] + 1 < len(forest.left)).all()
    assert ((forest.feature >= 0) & (forest.feature < forest.features)).all()
