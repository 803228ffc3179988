"""Reader of Universal Binary JSON as XGBoost writes it, with every bound checked.

The structure of trees is checked in `modelserve.bundle.trees.forest`. Anything that XGBoost does not write is rejected
here, because XGBoost's own reader recurses without limit.
Called by `modelserve.bundle.trees.forest`.
"""

import struct
from collections.abc import Mapping
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from modelserve.errors import BundleError

Value = Any  # JSON: object, list, text, number, boolean, null, or a numpy array of numbers

DEPTH_LIMIT: Final = 16
"""Maximum nesting of objects and arrays; an XGBoost model has seven levels."""

VALUES_LIMIT: Final = 4_000_000
"""Maximum number of values in a file, where an array of numbers counts as one; a model has about 30 per tree."""

_NUMBERS: Final[Mapping[int, struct.Struct]] = {
    ord(mark): struct.Struct(">" + code) for mark, code in zip("UiIlLdD", "Bbhiqfd", strict=True)
}
_ARRAYS: Final[Mapping[int, np.dtype[Any]]] = {  # element type of a typed array, by its mark
    mark: np.dtype(packed.format) for mark, packed in _NUMBERS.items()
}
_LENGTH: Final = struct.Struct(">Bq")
_WORDS: Final[Mapping[int, bool | None]] = {ord("Z"): None, ord("T"): True, ord("F"): False}


def read_ubjson(data: bytes) -> Value:
    r"""Parse UBJSON; typed arrays become numpy arrays in the byte order of the file.

    Raises
    ------
    BundleError
        The bytes are cut short, nest too deep, repeat a key, or contain something XGBoost does not write.

    Examples
    --------
    >>> read_ubjson(b"{L" + bytes(7) + b"\x01ai\x05}")
    {'a': 5}
    """
    reader = _Reader(data)
    value = reader.value(0)
    if reader.at != len(data):
        raise BundleError(f"UBJSON: {len(data) - reader.at} bytes after the end, expected none")
    return value


class _Reader:
    """A parser with its current position `at` in the bytes, and the number of values read so far."""

    __slots__ = ("at", "data", "values")

    def __init__(self, data: bytes) -> None:
        self.data = data
        self.at = 0
        self.values = 0

    def value(self, depth: int) -> Value:
        self.values += 1
        if depth > DEPTH_LIMIT or self.values > VALUES_LIMIT:
            raise BundleError(f"UBJSON: deeper than {DEPTH_LIMIT} or more than {VALUES_LIMIT} values, expected a model")
        mark = self.byte()
        if mark in _NUMBERS:
            return self.number(mark)
        if mark == ord("S"):
            return self.text()
        if mark == ord("{"):
            return self.object(depth)
        if mark == ord("["):
            return self.array(depth)
        if mark in _WORDS:
            return _WORDS[mark]
        raise BundleError(f"UBJSON: {bytes([mark])!r} at byte {self.at - 1}, expected the start of a value")

    def byte(self) -> int:
        return self.take(1)[0]

    def take(self, count: int) -> bytes:
        if count > len(self.data) - self.at:
            raise BundleError(f"UBJSON: cut short at byte {self.at} of {len(self.data)}, expected {count} more")
        self.at += count
        return self.data[self.at - count : self.at]

    def number(self, mark: int) -> int | float:
        packed = _NUMBERS[mark]
        found: int | float = packed.unpack(self.take(packed.size))[0]
        return found

    def length(self) -> int:
        """Read the length of a text or array, which XGBoost always writes as a 64-bit integer."""
        at, self.at = self.at, self.at + _LENGTH.size
        if self.at > len(self.data):
            raise BundleError(f"UBJSON: cut short at byte {at} of {len(self.data)}, expected a length")
        mark, count = _LENGTH.unpack_from(self.data, at)
        if mark != ord("L") or not 0 <= count <= len(self.data):
            raise BundleError(f"UBJSON: no length at byte {at}, expected one of at most {len(self.data)}")
        return int(count)

    def text(self) -> str:
        try:
            return self.take(self.length()).decode()
        except UnicodeDecodeError as error:
            raise BundleError(f"UBJSON: no UTF-8 before byte {self.at}, expected text") from error

    def object(self, depth: int) -> dict[str, Value]:
        found: dict[str, Value] = {}
        while self.data[self.at : self.at + 1] != b"}":
            key = self.text()
            if key in found:
                raise BundleError(f"UBJSON: the key {key[:40]!r} twice, expected once")
            found[key] = self.value(depth + 1)
        self.at += 1
        return found

    def array(self, depth: int) -> "list[Value] | npt.NDArray[Any]":  # of the element type given in the bytes
        mark = self.byte()
        if mark == ord("#"):
            return [self.value(depth + 1) for _ in range(self.length())]
        kind, then = self.take(2)
        dtype = _ARRAYS.get(kind)
        if mark != ord("$") or dtype is None or then != ord("#"):
            raise BundleError(f"UBJSON: an array without type and length before byte {self.at}, expected both")
        return np.frombuffer(self.take(self.length() * dtype.itemsize), dtype=dtype)
