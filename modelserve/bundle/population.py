"""Distribution of each feature in a model's training rows, and the distance of other rows from it (PSI).

References: Siddiqi, "Credit Risk Scorecards" (2006), for the population stability index and its bounds 0.1 and 0.2.
"""

from collections.abc import Sequence
from typing import Annotated, Final

import numpy as np
import numpy.typing as npt
from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator

from features.contract import FeatureContract
from modelserve.bundle.card import canonical_json, complaint
from modelserve.errors import BundleError

__all__ = ["Population"]

Matrix = npt.NDArray[np.float32]
Shares = npt.NDArray[np.float64]

DECILES: Final = np.arange(0.1, 0.95, 0.1)
LEAST_SHARE: Final = 1e-3
"""Minimum share of a bin; smaller shares are raised to it, because an empty bin would make the index infinite."""

Share = Annotated[float, Field(ge=0.0, le=1.0)]


class FeaturePopulation(BaseModel):
    """Distribution of one feature in the training rows: the share of each bin or category, and of missing values.

    For a numeric feature, `edges` separate the bins: the deciles, fewer if some coincide. A categorical feature has no
    edges and one share per category code of the contract. `shares` and `missing` add up to one.
    """

    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False)

    edges: tuple[float, ...] | None
    shares: tuple[Share, ...]
    missing: Share

    @model_validator(mode="after")
    def _bins_and_shares_agree(self) -> "FeaturePopulation":
        if self.edges is not None and len(self.shares) != len(self.edges) + 1:
            raise ValueError(f"shares: found {len(self.shares)}, expected one more than edges ({len(self.edges)})")
        return self

    def psi(self, values: npt.NDArray[np.float32]) -> float:
        """Return the population stability index of new values (n,) relative to the training rows.

        It is the sum over all bins of (a - e) ln(a / e), where e is the share in training and a the share now.

        >>> seen = FeaturePopulation(edges=(1.0, 2.0), shares=(0.5, 0.25, 0.25), missing=0.0)
        >>> round(seen.psi(np.array([0.5, 0.5, 1.5, 3.0], dtype=np.float32)), 6)
        0.0
        """
        expected = np.array([*self.shares, self.missing])
        actual = _shares(values, self.edges, len(self.shares))
        expected, actual = np.maximum(expected, LEAST_SHARE), np.maximum(actual, LEAST_SHARE)
        return float(np.sum((actual - expected) * np.log(actual / expected)))


class Population(BaseModel):
    """Distribution of every feature in the training rows of a model, as encoded for the model."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    rows: int = Field(ge=1)
    features: dict[str, FeaturePopulation]

    @classmethod
    def of(cls, matrix: Matrix, contract: FeatureContract) -> "Population":
        """Compute the distributions from training rows (n, k) that the contract encoded."""
        features = {}
        for column, name in enumerate(contract.names):
            values = matrix[:, column]
            texts = contract.categories.get(name)
            edges = _edges(values) if texts is None else None
            shares = _shares(values, edges, len(texts) if texts is not None else len(edges or ()) + 1)
            features[name] = FeaturePopulation(edges=edges, shares=tuple(shares[:-1].tolist()), missing=shares[-1])
        return cls(rows=len(matrix), features=features)

    @classmethod
    def from_json(cls, data: bytes, names: Sequence[str], *, where: str) -> "Population":
        """Read a population from the JSON that `to_json` wrote."""
        try:
            population = cls.model_validate_json(data)
        except ValidationError as error:
            raise BundleError(f"{where}: {complaint(error)}") from error
        if set(population.features) != set(names):
            raise BundleError(
                f"{where}: {len(population.features)} features, expected the {len(names)} of the contract"
            )
        return population

    def to_json(self) -> bytes:
        """Return the population as JSON; equal populations give equal bytes."""
        return canonical_json(self.model_dump(mode="json"))


def _edges(values: npt.NDArray[np.float32]) -> tuple[float, ...]:
    known = values[np.isfinite(values)]
    if not len(known):
        return ()
    # Without interpolation, every edge is a value of the data, so the bins are the same in any precision.
    found = np.quantile(known, DECILES, method="inverted_cdf")
    return tuple(float(edge) for edge in np.unique(found.astype(np.float32)))


def _shares(values: npt.NDArray[np.float32], edges: tuple[float, ...] | None, bins: int) -> Shares:
    """Return the share of the values in each bin, followed by the share of missing values; shape (bins + 1,)."""
    known = values[~np.isnan(values)]
    if edges is None:
        codes = known.astype(np.int64)
    else:
        codes = np.searchsorted(np.array(edges, dtype=np.float32), known, side="left")
    counts = np.bincount(np.clip(codes, 0, max(bins - 1, 0)), minlength=bins)[:bins] if bins else np.zeros(0)
    shares: Shares = np.append(counts, len(values) - len(known)).astype(np.float64) / max(len(values), 1)
    return shares
