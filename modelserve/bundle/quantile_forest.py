"""A quantile regression forest: trees whose leaves hold sampled run times, pooled over all trees into p50 and p90.

Fitted in `pipelines.models.boosting`.

Reference: Meinshausen, "Quantile Regression Forests", JMLR 7 (2006).
"""

from dataclasses import dataclass
from functools import cached_property
from typing import Final

import numpy as np
import numpy.typing as npt

from modelserve.bundle.trees.forest import Forest, read_forest
from modelserve.errors import BundleError
from scheduler_core.types import FloatArray

__all__ = ["VALUES_PER_LEAF", "QuantileForest", "read_quantile_forest"]

VALUES_PER_LEAF: Final = 8
"""Number of training values that each leaf holds, so that every tree weighs the same."""
STORED: Final = np.dtype("<f4")
"""Type of the values in the bundle's file, which holds nothing else: leaf by leaf, in the order of the nodes."""


@dataclass(frozen=True, kw_only=True)
class QuantileForest:
    """The trees, and the values of the leaves in the order of the nodes.

    `values` (leaves, `VALUES_PER_LEAF`) are log run times minus the reference p50 of their job.
    """

    forest: Forest
    values: npt.NDArray[np.float32]

    @property
    def stored(self) -> bytes:
        """Return the values as the bytes of the bundle's file."""
        return self.values.astype(STORED).tobytes()

    def rows(self, matrix: npt.NDArray[np.float32]) -> FloatArray:
        """Return p50 and p90 (n, 2) of a matrix (n, k), in log units relative to the reference p50."""
        from modelserve.bundle.trees.compiled import pooled  # numba: a process that only reads bundles does not load it

        out, forest = np.empty((len(matrix), 2)), self.forest
        rows, values = np.ascontiguousarray(matrix, dtype=np.float32), np.ascontiguousarray(self.values)
        trees = self._nodes, self._nodes.view(np.float32), forest.words, forest.root, forest.depth
        pooled(rows, *trees, values, out)
        return out

    @cached_property
    def _nodes(self) -> npt.NDArray[np.int32]:
        """The nodes in the layout of `pooled`."""
        nodes, leaf = self.forest.nodes.copy(), self.forest.left < 0
        nodes[leaf, 3] = np.arange(int(leaf.sum()))
        return nodes.reshape(-1)


def read_quantile_forest(trees: bytes, values: bytes, *, features: int, name: str) -> QuantileForest:
    """Read the two files of a forest, and check that they match."""
    forest = read_forest(trees, name=f"{name}.ubj")
    if forest.features != features or forest.outputs != 1 or (forest.words_at >= 0).any() or not len(forest.root):
        raise BundleError(f"{name}.ubj: other trees, expected numeric splits on {features} features; train again")
    leaves = int((forest.left < 0).sum())
    expected = leaves * VALUES_PER_LEAF * STORED.itemsize
    if len(values) != expected:
        raise BundleError(
            f"{name}.f32: found {len(values)} bytes, expected {expected} for {leaves} leaves; train again"
        )
    read = np.frombuffer(values, STORED).reshape(leaves, VALUES_PER_LEAF).astype(np.float32)
    if not np.isfinite(read).all():
        raise BundleError(f"{name}.f32: found values that are not finite, expected log run times; train again")
    return QuantileForest(forest=forest, values=read)
