"""The trees of an XGBoost model file as flat arrays, with every index checked.

The file is checked before XGBoost loads it, because neither XGBoost nor the compiled code checks bounds.
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from modelserve.bundle.trees.ubjson import Value, read_ubjson
from modelserve.errors import BundleError

__all__ = ["Forest", "read_forest"]

OBJECTIVES: Final = ("reg:quantileerror", "reg:absoluteerror", "reg:squarederror")
"""Accepted objectives: their output is the sum of the leaf values, without a transformation."""

OLDEST_MAJOR: Final = 2
"""Minimum major version of XGBoost that saved the file; older files have another layout, which is not checked here."""

TREES_LIMIT: Final = 100_000
DEPTH_LIMIT: Final = 64
"""Maximum depth of a tree; XGBoost's SHAP needs memory quadratic in it."""

NO_PARENT: Final = 2**31 - 1
"""Parent index that XGBoost writes for the root of a tree."""

_NODE_ARRAYS: Final[Mapping[str, str]] = {
    "left_children": "int32",
    "right_children": "int32",
    "parents": "int32",
    "split_indices": "int32",
    "split_conditions": "float32",
    "default_left": "uint8",
    "split_type": "uint8",
    "base_weights": "float32",
    "loss_changes": "float32",
    "sum_hessian": "float32",
}
"""The arrays of a tree with one entry per node, and their element types."""

CATEGORY_WORDS_LIMIT: Final = 1 << 18
"""Maximum size of all category sets, in 32-bit words (1 MiB). A tiny file could otherwise demand gigabytes."""
CATEGORY_LIMIT: Final = 1 << 24
"""Upper bound (exclusive) of category codes, as in XGBoost: float32 does not represent larger integers exactly."""

DEFAULT_LEFT: Final = 1 << 30
CATEGORICAL: Final = 1 << 29
FEATURE: Final = CATEGORICAL - 1
"""Bit masks of a node's second number: two flags, and the bits of the feature index (`FEATURE`)."""

_FLAGS: Final = ("default_left", "split_type")
_STATISTICS: Final = ("base_weights", "loss_changes", "sum_hessian")
IntArray = npt.NDArray[np.int64]


@dataclass(frozen=True, kw_only=True)
class Forest:
    """The nodes of all trees, concatenated: `root` holds the index of each tree's first node.

    Per node, `left` is the index of the left child; the right child is the next node. In a leaf, `left` is -1 and
    `threshold` is the value of the leaf. `words_at` is the offset in `words` of a categorical split's set, which starts
    with its number of words; it is -1 for a numeric split.
    Per tree, `depth` is the number of steps from the root to the deepest leaf, and `group` is the output that the tree
    adds to. `base` holds the initial value of each output.
    """

    feature: npt.NDArray[np.int32]
    threshold: npt.NDArray[np.float32]
    left: npt.NDArray[np.int32]
    default_left: npt.NDArray[np.bool_]
    words_at: npt.NDArray[np.int32]
    words: npt.NDArray[np.uint32]
    root: npt.NDArray[np.int32]
    depth: npt.NDArray[np.int32]
    group: npt.NDArray[np.int32]
    base: npt.NDArray[np.float32]
    features: int

    @property
    def outputs(self) -> int:
        """The number of outputs per row."""
        return len(self.base)

    @cached_property
    def nodes(self) -> npt.NDArray[np.int32]:
        """The nodes (n, 4) as compiled code walks them; a node fills a quarter of a cache line.

        The columns of an inner node: left child, flags and feature, bits of the threshold, offset of the category set.
        The columns of a leaf: its own index, its parent's feature, NaN (so that a walk stays there), bits of its value.
        """
        leaf = self.left < 0
        inner = np.flatnonzero(~leaf)
        feature = self.feature.copy()
        for child in (self.left[inner], self.left[inner] + 1):
            feature[child] = np.where(leaf[child], self.feature[inner], feature[child])
        nodes = np.empty((len(leaf), 4), dtype=np.int32)
        nodes[:, 0] = np.where(leaf, np.arange(len(leaf)), self.left)
        flags = np.where(self.default_left, DEFAULT_LEFT, 0) | np.where(self.words_at >= 0, CATEGORICAL, 0)
        nodes[:, 1] = np.where(leaf, DEFAULT_LEFT, flags) | feature
        nodes[:, 2] = np.where(leaf, np.float32(np.nan), self.threshold).view(np.int32)
        nodes[:, 3] = np.where(leaf, self.threshold.view(np.int32), self.words_at)
        return nodes


def read_forest(data: bytes, *, name: str) -> Forest:
    """Read the trees of a model file."""
    try:
        return _forest(read_ubjson(data))
    except BundleError as error:
        raise BundleError(f"{name}: {error}; train again") from error
    except (KeyError, TypeError, ValueError, OverflowError, AttributeError, IndexError) as error:
        detail = f"{type(error).__name__}: {error}"[:120]
        raise BundleError(f"{name}: cannot read this as an XGBoost model ({detail}), expected a .ubj file") from error


def _forest(file: Value) -> Forest:
    if file["version"][0] < OLDEST_MAJOR:
        raise BundleError(f"saved by XGBoost {file['version'][0]}, expected {OLDEST_MAJOR} or later")
    learner = file["learner"]
    booster, objective, param = (
        learner["gradient_booster"],
        learner["objective"]["name"],
        learner["learner_model_param"],
    )
    if booster["name"] != "gbtree":
        raise BundleError(f"a {str(booster['name'])[:20]!r} model, expected 'gbtree'")
    if objective not in OBJECTIVES:
        raise BundleError(f"objective {str(objective)[:40]!r}, expected one of {', '.join(OBJECTIVES)}")
    base = np.atleast_1d(np.array(json.loads(param["base_score"]), dtype=np.float32))
    features, outputs = int(param["num_feature"]), max(int(param["num_target"]), int(param["num_class"]), 1)
    if base.shape != (outputs,) or not np.isfinite(base).all():
        raise BundleError(f"base_score of shape {base.shape}, expected {outputs} finite numbers")
    for each in ("feature_names", "feature_types"):
        if len(learner[each]) not in (0, features):
            raise BundleError(f"{len(learner[each])} {each}, expected {features}")
    model = booster["model"]
    trees, group = model["trees"], np.asarray(model["tree_info"], dtype=np.int64)
    _check_whole(model, len(trees), group, outputs)
    if any(tree["id"] != place for place, tree in enumerate(trees)):
        raise BundleError("tree ids out of order, expected them numbered from 0")
    sizes = np.array([_size(tree) for tree in trees], dtype=np.int64)
    nodes = {key: _joined(trees, key, sizes, dtype) for key, dtype in _NODE_ARRAYS.items()}
    root = np.cumsum(sizes) - sizes
    left = _left(nodes, sizes, root)
    if len(left) and not 0 <= nodes["split_indices"].min() <= nodes["split_indices"].max() < max(features, 1):
        raise BundleError(f"a split on feature {nodes['split_indices'].max()}, expected one below {features}")
    words_at, words = _category_sets(trees, sizes, root)
    if not np.isfinite(nodes["split_conditions"][left < 0]).all():
        raise BundleError("a leaf that is not a number, expected finite values")
    if not all(np.isfinite(nodes[key]).all() for key in _STATISTICS) or (nodes["sum_hessian"] < 0).any():
        raise BundleError("node statistics that are not numbers, expected finite values")
    if any((nodes[key] > 1).any() for key in _FLAGS):
        raise BundleError(f"{' or '.join(_FLAGS)} above 1, expected 0 or 1")
    if ((words_at >= 0) != (nodes["split_type"] != 0)).any():
        raise BundleError("categorical splits without a set, or sets without a split; expected one each")
    return Forest(
        feature=nodes["split_indices"],
        threshold=nodes["split_conditions"],
        left=left,
        default_left=nodes["default_left"] != 0,
        words_at=words_at,
        words=words,
        root=root.astype(np.int32),
        depth=_depth(left, root),
        group=group.astype(np.int32),
        base=base,
        features=features,
    )


def _check_whole(model: Value, trees: int, group: npt.NDArray[np.int64], outputs: int) -> None:
    """Check the fields that describe all trees together; XGBoost uses them unchecked."""
    declared = int(model["gbtree_model_param"]["num_trees"])
    if not trees == declared == len(group) <= TREES_LIMIT:
        raise BundleError(f"{trees} trees, {len(group)} in tree_info, {declared} declared; expected equal numbers")
    if trees and not 0 <= group.min() <= group.max() < outputs:
        raise BundleError(f"tree_info from {group.min()} to {group.max()}, expected outputs below {outputs}")
    rounds = np.asarray(model["iteration_indptr"], dtype=np.int64)
    if not len(rounds) or rounds[0] != 0 or rounds[-1] != trees or (np.diff(rounds) < 0).any():
        raise BundleError(f"iteration_indptr does not run from 0 to {trees}, expected ascending bounds")
    if any(len(part) for part in model["cats"].values()):
        raise BundleError("categories inside the model, expected them in the contract")


def _size(tree: Value) -> int:
    param = tree["tree_param"]
    size = int(param["num_nodes"])
    if size < 1 or int(param["num_deleted"]) != 0 or int(param["size_leaf_vector"]) not in (0, 1):
        raise BundleError("a tree with no, deleted or vector nodes, expected one number per leaf")
    return size


def _joined(
    trees: Sequence[Value], key: str, sizes: IntArray, dtype: str
) -> npt.NDArray[Any]:  # with element type `dtype`
    """Return the array `key` of all trees, concatenated."""
    written = np.dtype(dtype).newbyteorder(">")
    parts = [tree[key] for tree in trees]
    for part, size in zip(parts, sizes.tolist(), strict=True):
        if not isinstance(part, np.ndarray) or len(part) != size or part.dtype != written:
            raise BundleError(f"{key} is not {size} times {dtype}, expected one value per node")
    return np.concatenate([np.zeros(0, dtype=written), *parts]).astype(dtype)


def _left(nodes: Mapping[str, npt.NDArray[Any]], sizes: IntArray, root: IntArray) -> npt.NDArray[np.int32]:
    """Check that the parent and child indices form trees, and return each node's left child; -1 in a leaf."""
    offset = np.repeat(root, sizes)
    local = np.arange(len(offset)) - offset
    left, right = nodes["left_children"].astype(np.int64), nodes["right_children"].astype(np.int64)
    inner = np.flatnonzero(left != -1)
    if (
        (right[left == -1] != -1).any()
        or (right[inner] != left[inner] + 1).any()
        or (left[inner] <= local[inner]).any()
        or (right[inner] >= np.repeat(sizes, sizes)[inner]).any()
    ):
        raise BundleError("children out of order or range, expected both after their parent and adjacent")
    left[inner] += offset[inner]
    parent = np.full(len(offset), -1, dtype=np.int64)
    parent[left[inner]], parent[left[inner] + 1] = inner, inner
    below = local > 0
    parents = nodes["parents"].astype(np.int64)
    if (
        len(inner) * 2 + len(sizes) != len(offset)
        or (parent != parents + offset)[below].any()
        or (parents[root] != NO_PARENT).any()
    ):
        raise BundleError("nodes with two or no parents, expected trees")
    return left.astype(np.int32)


def _depth(left: npt.NDArray[np.int32], root: IntArray) -> npt.NDArray[np.int32]:
    """Return the number of levels below each root, by walking all trees together, level by level."""
    depth = np.zeros(len(root), dtype=np.int32)
    level, tree = root, np.arange(len(root))
    for below in range(DEPTH_LIMIT + 1):
        inner = left[level] >= 0
        level, tree = left[level[inner]].astype(np.int64), tree[inner]
        if not len(level):
            return depth
        depth[tree] = below + 1
        level, tree = np.concatenate([level, level + 1]), np.concatenate([tree, tree])
    raise BundleError(f"a tree deeper than {DEPTH_LIMIT}, expected at most that")


def _category_sets(
    trees: Sequence[Value], sizes: IntArray, root: IntArray
) -> tuple[npt.NDArray[np.int32], npt.NDArray[np.uint32]]:
    """Return the offset of each node's category set, -1 for a node without one, and the sets as bit masks.

    A row goes right if its category is in the set. A set is its number of 32-bit words, then the words.
    """
    keys = ("categories_nodes", "categories_segments", "categories_sizes", "categories")
    nodes, lengths, categories = [], [], []
    for tree, size, offset in zip(trees, sizes.tolist(), root.tolist(), strict=True):
        node, begin, length, category = (np.asarray(tree[key], dtype=np.int64) for key in keys)
        if not len(node) and not len(category):
            continue
        end = np.cumsum(length)
        if not len(node) == len(begin) == len(length) or (begin != end - length).any() or end[-1:] != len(category):
            raise BundleError("category sets with gaps or overlaps, expected one directly after another")
        ascending = (np.diff(node) > 0).all() and node[0] >= 0 and node[-1] < size
        if not ascending or not 1 <= length.min() <= length.max() <= len(category):
            raise BundleError("category sets of nodes out of order or range, expected ascending nodes")
        nodes.append(node + offset)
        lengths.append(length)
        categories.append(category)
    words_at = np.full(int(sizes.sum()), -1, dtype=np.int32)
    if not nodes:
        return words_at, np.zeros(0, dtype=np.uint32)
    length, category = np.concatenate(lengths), np.concatenate(categories)
    if not 0 <= category.min() <= category.max() < CATEGORY_LIMIT:
        raise BundleError(f"categories from {category.min()} to {category.max()}, expected 0 to {CATEGORY_LIMIT}")
    width = np.maximum.reduceat(category, np.cumsum(length) - length) // 32 + 1
    at = np.cumsum(width + 1) - (width + 1)
    total = int((width + 1).sum())
    if total > CATEGORY_WORDS_LIMIT:
        raise BundleError(f"category sets of {total} words, expected at most {CATEGORY_WORDS_LIMIT}")
    words = np.zeros(total, dtype=np.uint32)
    words[at] = width
    bits = np.uint32(1) << (category % 32).astype(np.uint32)
    np.bitwise_or.at(words, np.repeat(at + 1, length) + category // 32, bits)
    words_at[np.concatenate(nodes)] = at
    return words_at, words
