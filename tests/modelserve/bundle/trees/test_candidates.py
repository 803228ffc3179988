import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from modelserve.bundle.trees.compiled import GROUP, LANES, tree_outputs
from modelserve.bundle.trees.forest import Forest
from tests.examples import examples

CATEGORIES = 70
OUTPUTS = 2


def grown(rng: np.random.Generator, *, trees: int, depth: int, features: int) -> Forest:
    """Return trees drawn at random: about half of the splits on the last third of the features are categorical."""
    feature, threshold, left, words_at, words, root, depths = [], [], [], [], [], [], []

    def grow(place: int, below: int) -> int:
        """Make a node a leaf or a split over two new ones, and return how many levels lie below it."""
        feature[place] = int(rng.integers(features))
        threshold[place] = rng.normal()
        if below == 0 or rng.random() < 0.15:
            return 0
        left[place] = len(left)
        for column, empty in ((feature, 0), (threshold, 0.0), (left, -1), (words_at, -1)):
            column += [empty, empty]
        if feature[place] >= features * 2 // 3 and rng.random() < 0.5:
            words_at[place] = len(words)
            count = int(rng.integers(1, 4))
            words.extend([count, *rng.integers(0, 1 << 32, count).tolist()])
        first = left[place]
        return 1 + max(grow(first, below - 1), grow(first + 1, below - 1))

    for _ in range(trees):
        root.append(len(left))
        for column, empty in ((feature, 0), (threshold, 0.0), (left, -1), (words_at, -1)):
            column.append(empty)
        depths.append(grow(root[-1], depth))
    return Forest(
        feature=np.array(feature, np.int32),
        threshold=np.array(threshold, np.float32),
        left=np.array(left, np.int32),
        default_left=rng.random(len(left)) < 0.5,
        words_at=np.array(words_at, np.int32),
        words=np.array(words, np.uint32),
        root=np.array(root, np.int32),
        depth=np.array(depths, np.int32),
        group=rng.integers(0, OUTPUTS, trees).astype(np.int32),
        base=rng.normal(size=OUTPUTS).astype(np.float32),
        features=features,
    )


def goes_right(forest: Forest, node: int, value: np.float32) -> bool:
    if np.isnan(value):
        return not forest.default_left[node]
    words_at = forest.words_at[node]
    if words_at < 0:
        return bool(value >= forest.threshold[node])
    if value < 0 or value >= 32 * forest.words[words_at]:
        return False
    return bool(forest.words[words_at + 1 + int(value) // 32] >> np.uint32(int(value) % 32) & 1)


def plainly(forest: Forest, rows: np.ndarray) -> np.ndarray:
    """Answer row by row and tree by tree, a node at a time."""
    out = np.tile(forest.base, (len(rows), 1))
    for answer, row in zip(out, rows, strict=True):
        for root, group in zip(forest.root, forest.group, strict=True):
            node = int(root)
            while forest.left[node] >= 0:
                node = int(forest.left[node]) + goes_right(forest, node, row[forest.feature[node]])
            answer[group] += forest.threshold[node]
    return out.astype(np.float64)


def drawn(rng: np.random.Generator, shape: tuple[int, int]) -> np.ndarray:
    """Return rows with a third of them whole numbers, as categories are, and some values missing."""
    rows = rng.normal(scale=2.0, size=shape).astype(np.float32)
    whole = rng.random(shape) < 0.3
    rows[whole] = rng.integers(-1, CATEGORIES + 40, whole.sum())
    rows[rng.random(shape) < 0.1] = np.nan
    rows[rng.random(shape) < 0.02] = -0.0
    return rows


def candidates(rng: np.random.Generator, jobs: int, each: int, features: int, changed: int) -> np.ndarray:
    """Return up to `each` rows of every job, that differ in columns of its own: up to `changed` of them."""
    parts = []
    for row in drawn(rng, (jobs, features)):
        block = np.tile(row, (int(rng.integers(1, each + 1)), 1))
        columns = rng.choice(features, int(rng.integers(0, changed + 1)), replace=False)
        block[:, columns] = drawn(rng, (len(block), len(columns)))
        parts.append(block)
    return np.vstack(parts)


@settings(max_examples=examples(120), deadline=None)
@given(
    seed=st.integers(0, 2**32 - 1),
    trees=st.integers(0, 20),
    depth=st.integers(0, 5),
    features=st.integers(1, 40),
    jobs=st.integers(1, 12),
    each=st.integers(1, 14),
    share=st.floats(0.0, 1.0),
)
def test_candidates_are_answered_as_if_each_row_went_down_every_tree_alone(
    seed: int, trees: int, depth: int, features: int, jobs: int, each: int, share: float
) -> None:
    rng = np.random.default_rng(seed)
    forest = grown(rng, trees=trees, depth=depth, features=features)
    rows = candidates(rng, jobs, each, features, round(share * features))

    answers = tree_outputs(forest, rows)

    assert answers.tobytes() == plainly(forest, rows).tobytes()


@pytest.mark.parametrize("changed", [0, 1, 9, 70])
@pytest.mark.parametrize("trees", [1, LANES - 1, LANES, LANES + 1, GROUP, 2 * GROUP + 1])
def test_however_many_trees_there_are_and_columns_change(changed: int, trees: int) -> None:
    rng = np.random.default_rng(trees + changed)
    forest = grown(rng, trees=trees, depth=6, features=70)  # more columns than the bits of a path
    rows = drawn(rng, (3, 70)).repeat(11, axis=0)
    rows[:, :changed] = drawn(rng, (len(rows), changed))

    answers = tree_outputs(forest, rows)

    assert answers.tobytes() == plainly(forest, rows).tobytes()
