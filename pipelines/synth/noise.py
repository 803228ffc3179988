"""Randomness by address: every number is a function of the seed, the name of its stream and its index.

So the bytes of a trace depend neither on how it is cut into chunks nor on the order of the calls. No state.
Called by `population`, `runtime`, `use` and `tables`.
"""

import hashlib
from dataclasses import dataclass
from typing import Final, TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from scipy.special import ndtri

from pipelines.synth.curves import Floats

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
    """Random numbers of one seed, by stream and index."""

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
        """Return positions drawn in proportion to `weights`.

        >>> Noise(seed=1).choice("coin", np.arange(4), [0.0, 1.0]).tolist()
        [1, 1, 1, 1]
        """
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
