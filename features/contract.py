"""The contract stored with a model: feature names, order, types, categories, units, and a fingerprint."""

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Final, Self

import numpy as np
import numpy.typing as npt
import polars as pl

from features.errors import ContractError
from features.sets import FEATURE_SETS, FEATURES, named

__all__ = ["RESPONSE_CONTRACT", "FeatureContract"]

_FIELDS: Final = frozenset({"names", "dtypes", "kinds", "units", "categories", "fingerprint"})


@dataclass(frozen=True, kw_only=True)  # no slots: two properties are cached
class FeatureContract:
    """The feature frame that a model expects; `categories` maps a categorical feature to the texts seen in training."""

    names: tuple[str, ...]
    categories: Mapping[str, tuple[str, ...]]

    @classmethod
    def fit(cls, frame: pl.DataFrame, names: str | Sequence[str] | None = None) -> Self:
        """Learn the contract of the features `names` (all of the frame's columns by default) from training rows."""
        listed = tuple(named(frame.columns if names is None else names))
        cls(names=listed, categories={}).check(frame)
        texts = [name for name in listed if FEATURES[name].kind == "c"]
        seen = {name: tuple(frame[name].drop_nulls().unique().sort().to_list()) for name in texts}
        return cls(names=listed, categories=seen)

    @property
    def dtypes(self) -> tuple[str, ...]:
        """Return the types of the frame's columns, as polars names them."""
        return tuple(str(FEATURES[name].dtype) for name in self.names)

    @property
    def kinds(self) -> tuple[str, ...]:
        """Return XGBoost's `feature_types`, in the order of the matrix."""
        return tuple(FEATURES[name].kind for name in self.names)

    @property
    def units(self) -> tuple[str, ...]:
        """Return the units of the features."""
        return tuple(FEATURES[name].unit for name in self.names)

    @cached_property
    def fingerprint(self) -> str:
        """Return the SHA-256 of the contract's canonical JSON."""
        return hashlib.sha256(_canonical(self._content()).encode()).hexdigest()

    def check(self, frame: pl.DataFrame) -> None:
        """Raise `ContractError` unless `frame` holds every feature with its type; ignore other columns."""
        schema = frame.schema
        missing = [name for name in self.names if name not in schema]
        if missing:
            raise ContractError(f"features: found no {', '.join(missing)}; expected every name of the contract")
        wrong = [
            f"{name} as {schema[name]} (expected {dtype})"
            for name, dtype in zip(self.names, self.dtypes, strict=True)
            if str(schema[name]) != dtype
        ]
        if wrong:
            raise ContractError(f"features: found {', '.join(wrong)}; build the frame with features.build")

    def encode(self, frame: pl.DataFrame) -> npt.NDArray[np.float32]:
        """Return the model's input matrix (n, k), C-contiguous, with category codes for texts.

        Null and categories that were not seen in training become NaN.
        """
        self.check(frame)
        coded = frame[list(self.names)].with_columns(self._codes)
        return np.ascontiguousarray(coded.to_numpy(), dtype=np.float32)

    def to_json(self) -> str:
        """Return the contract and its fingerprint as JSON."""
        return json.dumps({**self._content(), "fingerprint": self.fingerprint}, indent=1, ensure_ascii=False)

    @classmethod
    def from_json(cls, text: str) -> Self:
        """Read a contract from the JSON that `to_json` writes."""
        try:
            stored = json.loads(text)
        except json.JSONDecodeError as error:
            raise ContractError(f"contract: found no JSON ({error}); expected what to_json wrote") from error
        if not isinstance(stored, dict) or set(stored) != _FIELDS:
            found = sorted(stored) if isinstance(stored, dict) else type(stored).__name__
            raise ContractError(f"contract: found {found}; expected the fields {sorted(_FIELDS)}")
        try:
            names, texts = tuple(stored["names"]), stored["categories"].items()
            contract = cls(names=tuple(named(names)), categories={name: tuple(each) for name, each in texts})
        except (TypeError, AttributeError) as error:
            raise ContractError(f"contract: found a field of the wrong shape ({error}); expected lists") from error
        fingerprint = hashlib.sha256(_canonical({k: stored[k] for k in _FIELDS - {"fingerprint"}}).encode()).hexdigest()
        if fingerprint != stored["fingerprint"]:
            raise ContractError(
                f"contract: found the fingerprint {str(stored['fingerprint'])[:12]}; expected {fingerprint[:12]}, that "
                "of its content; use the contract that was stored with the model"
            )
        if fingerprint != contract.fingerprint:
            raise ContractError(
                "contract: found features with other types or units than in this version; train the model again with it"
            )
        return contract

    @cached_property
    def _codes(self) -> list[pl.Expr]:
        return [
            pl.col(name).replace_strict(
                {text: float(code) for code, text in enumerate(texts)}, default=None, return_dtype=pl.Float64
            )
            for name, texts in self.categories.items()
        ]

    def _content(self) -> dict[str, object]:
        return {
            "names": list(self.names),
            "dtypes": list(self.dtypes),
            "kinds": list(self.kinds),
            "units": list(self.units),
            "categories": {name: list(texts) for name, texts in self.categories.items()},
        }


RESPONSE_CONTRACT: Final = FeatureContract(names=FEATURE_SETS["response"], categories={})
"""The features of response models: three requests, then network traffic and GPU memory by group, and by user."""


def _canonical(content: Mapping[str, object]) -> str:
    return json.dumps(content, sort_keys=True, separators=(",", ":"), ensure_ascii=True)
