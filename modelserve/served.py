"""One model ready to answer: its bundle, its trees compiled, how its rows are made, and the history they look back on.

Which version serves is `modelserve.models`' to say, and what an answer means the predictor's.
Made by `modelserve.models`; called by `modelserve.live` and whatever answers.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

import numpy as np
import numpy.typing as npt

from features.online import OnlineHistory
from features.rows import RowBuilder
from modelserve.boosters import raw_outputs
from modelserve.bundle import Bundle
from modelserve.errors import BundleError
from modelserve.trees import CompiledTrees

WALKS_LIMIT: Final = 12_800
"""Rows times trees up to which compiled trees are the quicker.

One `inplace_predict` costs about 90 microseconds before its first row, and then shares each tree among the rows of a
block. Compiled trees cost 10 to 14 nanoseconds a node from the first row on. Measured on two cores, the two meet at 32
rows of 400 trees of depth 7, and at 100 to 250 rows of the shallower models that training makes.
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class ServedModel:
    """One version of a model, in memory; `trees` are by target, `history` is shared with others of the trace."""

    bundle: Bundle
    trees: Mapping[str, CompiledTrees]
    rows: RowBuilder
    history: OnlineHistory

    @classmethod
    def of(cls, bundle: Bundle, history: OnlineHistory) -> "ServedModel":
        """Prepare a bundle, and compare its compiled trees with the library.

        Raises
        ------
        BundleError
            The two differ.
        """
        trees = {target: CompiledTrees(forest=forest) for target, forest in bundle.forests.items()}
        for target, compiled in trees.items():
            try:
                compiled.check(bundle.boosters[target], len(bundle.contract.names))
            except BundleError as error:
                raise BundleError(f"{bundle.reference}/{target}: {error}") from error
        rows = RowBuilder.of(bundle.contract, relative=bundle.card.relative)
        return cls(bundle=bundle, trees=trees, rows=rows, history=history)

    @property
    def reference(self) -> str:
        """The name by which an answer cites the model: `runtime.pai.ctr@7`."""
        return self.bundle.reference

    def margins(self, target: str, matrix: npt.NDArray[np.float32]) -> npt.NDArray[np.float64]:
        """Answer a matrix (n, k) with the outputs (n, outputs) of `target`, before any calibration.

        Few rows are walked by compiled trees and many by the library; the answers are equal to the bit.
        """
        trees = self.trees[target]
        if len(matrix) * len(trees.forest.root) <= WALKS_LIMIT:
            return trees.rows(matrix)
        return raw_outputs(self.bundle.boosters[target], matrix)
