"""The contract stored with a model: feature names, order, types, categories, units, and a fingerprint.

Checks a feature frame and encodes it as the model's input matrix; computes no feature. Fitted by `pipelines.models`,
stored by `modelserve.bundle.bundle`, and used to encode by `modelserve.bundle.predictor`.
"""

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Final

import numpy as np
import numpy.typing as npt
import polars as pl

from features.errors import ContractError
from features.sets import FEATURES, named

__all__ = ["FeatureContract"]

_FIELDS: Final = frozenset({"names", "dtypes", "kinds", "units", "categories", "fingerprint"})


@dataclass(frozen=True, kw_only=True)  # no slots: two properties are cached
class FeatureContract:
    """The feature frame that a model expects; `categories` maps a categorical feature to the texts seen in training."""

    names: tuple[str, ...]
    dtypes: tuple[str, ...]
    kinds: tuple[str, ...]
    units: tuple[str, ...]
    categories: Mapping[str, tuple[str, ...]]

    @classmethod
    def fit(cls, frame: pl.DataFrame, names: str | Sequence[str] | None = None) -> "FeatureContract":
        """Learn the contract of the features `names` (all of the frame's columns by default) from training rows.

        Raises
        ------
        ContractError
            If the frame lacks a feature, or holds one with another type.
        UnknownFeature
            If a name of a feature or feature set is unknown.
        """
        listed = tuple(named(frame.columns if names is None else names))
        features = [FEATURES[name] for name in listed]
        contract = cls(
            names=listed,
            dtypes=tuple(str(f.dtype) for f in features),
            kinds=tuple(f.kind for f in features),
            units=tuple(f.unit for f in features),
            categories={},
        )
        contract.check(frame)
        seen = {f.name: tuple(frame[f.name].drop_nulls().unique().sort().to_list()) for f in features if f.kind == "c"}
        return cls(
            names=contract.names,
            dtypes=contract.dtypes,
            kinds=contract.kinds,
            units=contract.units,
            categories=seen,
        )

    @property
    def feature_types(self) -> list[str]:
        """Return XGBoost's `feature_types`, in the order of the matrix."""
        return list(self.kinds)

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

        Raises
        ------
        ContractError
            If the frame lacks a feature, or holds one with another type.
        """
        self.check(frame)
        coded = frame[list(self.names)].with_columns(self._codes)
        return np.ascontiguousarray(coded.to_numpy(), dtype=np.float32)

    def to_json(self) -> str:
        """Return the contract and its fingerprint as JSON."""
        return json.dumps({**self._content(), "fingerprint": self.fingerprint}, indent=1, ensure_ascii=False)

    @classmethod
    def from_json(cls, text: str) -> "FeatureContract":
        """Read a contract from the JSON that `to_json` writes.

        Raises
        ------
        ContractError
            If the text is not a contract, was modified, or names features that this version defines differently.
        """
        try:
            stored = json.loads(text)
        except json.JSONDecodeError as error:
            raise ContractError(f"contract: found no JSON ({error}); expected what to_json wrote") from error
        if not isinstance(stored, dict) or set(stored) != _FIELDS:
            found = sorted(stored) if isinstance(stored, dict) else type(stored).__name__
            raise ContractError(f"contract: found {found}; expected the fields {sorted(_FIELDS)}")
        try:
            contract = cls(
                names=tuple(stored["names"]),
                dtypes=tuple(stored["dtypes"]),
                kinds=tuple(stored["kinds"]),
                units=tuple(stored["units"]),
                categories={name: tuple(texts) for name, texts in stored["categories"].items()},
            )
        except (TypeError, AttributeError) as error:
            raise ContractError(f"contract: found a field of the wrong shape ({error}); expected lists") from error
        if contract.fingerprint != stored["fingerprint"]:
            raise ContractError(
                f"contract: found the fingerprint {str(stored['fingerprint'])[:12]}; expected "
                f"{contract.fingerprint[:12]}, that of its content; use the contract that was stored with the model"
            )
        contract._check_definitions()
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

    def _check_definitions(self) -> None:
        named(self.names)
        for name, dtype, kind, unit in zip(self.names, self.dtypes, self.kinds, self.units, strict=True):
            feature = FEATURES[name]
            if (dtype, kind, unit) != (str(feature.dtype), feature.kind, feature.unit):
                raise ContractError(
                    f"contract: found {name} as {dtype}, {kind}, {unit!r}; expected {feature.dtype}, {feature.kind}, "
                    f"{feature.unit!r}; train the model again with this version"
                )


def _canonical(content: Mapping[str, object]) -> str:
    return json.dumps(content, sort_keys=True, separators=(",", ":"), ensure_ascii=True)
