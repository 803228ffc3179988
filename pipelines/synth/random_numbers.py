"""Random numbers computed from seed, stream name and index, and quantile curves that convert them to values.

The generator has no state, so a trace's bytes do not depend on its chunks or on the order of calls. The calibration
has the curves' numbers.
"""

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from scipy.special import ndtri

__all__ = ["Curve", "Floats", "Noise"]

Floats: TypeAlias = npt.NDArray[np.float64]

_ZERO: Final = 1e-3
"""Value that replaces 0 in a curve, because a logarithm of 0 does not exist; results at or below it become 0."""

_TAIL_SLOPE: Final = 0.7
"""Slope of a curve beyond its outermost quantiles, as a fraction of the slope between the last two (an assumption)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Curve:
    """A quantile function: natural logarithms of its values at some normal scores."""

    scores: tuple[float, ...]
    logs: tuple[float, ...]
    has_zero: bool

    @classmethod
    def of(cls, at: Sequence[float], values: Sequence[float]) -> "Curve":
        """Make a curve from probabilities and their quantiles, both ascending."""
        if len(at) != len(values) or list(values) != sorted(values):
            raise ValueError(f"quantiles {list(values)} at {list(at)}: expected as many, ascending")
        scores = ndtri(np.asarray(at, dtype=np.float64))
        logs = np.log(np.maximum(np.asarray(values, dtype=np.float64), _ZERO))
        return cls(scores=tuple(scores.tolist()), logs=tuple(logs.tolist()), has_zero=min(values) <= _ZERO)

    def at(self, scores: Floats) -> Floats:
        """Return the values at normal scores."""
        x, y = np.asarray(self.scores), np.asarray(self.logs)
        logs = np.interp(scores, x, y)
        low = _TAIL_SLOPE * (y[1] - y[0]) / (x[1] - x[0])
        high = _TAIL_SLOPE * (y[-1] - y[-2]) / (x[-1] - x[-2])
        logs += low * np.minimum(scores - x[0], 0.0) + high * np.maximum(scores - x[-1], 0.0)
        values = np.exp(logs)
        return np.where(values <= _ZERO * 1.0001, 0.0, values) if self.has_zero else values


def normal_ranks(latent: Floats, stratum: npt.NDArray[np.int64], weight: Floats) -> Floats:
    """Return each row's normal score by its weighted rank within its stratum: each stratum is exactly normal."""
    order = np.lexsort((latent, stratum))
    strata, weights = stratum[order], weight[order]
    cumulative = np.cumsum(weights)
    first = np.r_[True, strata[1:] != strata[:-1]]
    group = np.cumsum(first) - 1
    before = (cumulative - weights)[first]
    totals = np.diff(np.r_[before, cumulative[-1]])
    share = (cumulative - weights / 2 - before[group]) / totals[group]
    scores = np.empty_like(latent)
    scores[order] = ndtri(np.clip(share, 1e-9, 1.0 - 1e-9))
    return scores


Ints: TypeAlias = npt.NDArray[np.int64]
Words: TypeAlias = npt.NDArray[np.uint64]

_GOLDEN: Final = np.uint64(0x9E3779B97F4A7C15)
_MIX_1: Final = np.uint64(0xBF58476D1CE4E5B9)
_MIX_2: Final = np.uint64(0x94D049BB133111EB)
_HEX: Final = np.array([f"{byte:02x}".encode() for byte in range(256)], dtype="S2")


def _mix(words: Words) -> Words:
    """Scramble 64-bit words (the finaliser of SplitMix64, Steele, Lea and Flood 2014)."""
    mixed = words + _GOLDEN
    mixed ^= mixed >> np.uint64(30)
    mixed *= _MIX_1
    mixed ^= mixed >> np.uint64(27)
    mixed *= _MIX_2
    mixed ^= mixed >> np.uint64(31)
    return mixed


@dataclass(frozen=True, slots=True, kw_only=True)
class Noise:
    """Random numbers of one seed; equal stream names and indices give equal numbers."""

    seed: int

    def _words(self, stream: str, index: Ints) -> Words:
        digest = hashlib.blake2b(f"{self.seed}/{stream}".encode(), digest_size=16).digest()
        salt, key = np.frombuffer(digest, dtype="<u8")
        return _mix(_mix(index.astype(np.uint64) ^ salt) + key)

    def uniform(self, stream: str, index: Ints) -> Floats:
        """Return numbers in the open interval (0, 1)."""
        return ((self._words(stream, index) >> np.uint64(11)).astype(np.float64) + 0.5) * 2.0**-53

    def normal(self, stream: str, index: Ints) -> Floats:
        """Return standard normal numbers."""
        return np.asarray(ndtri(self.uniform(stream, index)), dtype=np.float64)

    def below(self, stream: str, index: Ints, bound: Ints | int) -> Ints:
        """Return whole numbers from 0 to `bound` - 1."""
        return np.asarray(self.uniform(stream, index) * bound, dtype=np.int64)

    def choice(self, stream: str, index: Ints, weights: npt.ArrayLike) -> Ints:
        """Return positions drawn in proportion to `weights`."""
        cumulative = np.cumsum(np.asarray(weights, dtype=np.float64))
        drawn = np.searchsorted(cumulative, self.uniform(stream, index) * cumulative[-1], side="right")
        return np.asarray(np.minimum(drawn, len(cumulative) - 1), dtype=np.int64)

    def digests(self, stream: str, index: Ints, digits: int) -> pa.Array:
        """Return hexadecimal identifiers of `digits` characters, as Arrow strings."""
        words = np.stack([self._words(f"{stream}/{part}", index) for part in range(-(-digits // 16))], axis=1)
        octets = words.astype("<u8").view(np.uint8).reshape(len(index), -1)[:, : digits // 2]
        text = np.ascontiguousarray(_HEX[octets]).tobytes()
        offsets = np.arange(len(index) + 1, dtype=np.int64) * digits
        return pa.LargeStringArray.from_buffers(len(index), pa.py_buffer(offsets), pa.py_buffer(text))
