"""Reader of Universal Binary JSON as XGBoost writes it, with every bound checked.

Anything that XGBoost does not write is rejected, since XGBoost's own reader recurses without limit and crashes.
"""

import struct
from collections.abc import Mapping
from typing import Any, Final

import numpy as np

from modelserve.errors import BundleError

Value = Any  # JSON: object, list, text, number, boolean, null, or a numpy array of numbers

DEPTH_LIMIT: Final = 16
"""Maximum nesting of objects and arrays; an XGBoost model has seven levels."""
VALUES_LIMIT: Final = 4_000_000
"""Maximum number of values in a file, where an array of numbers counts as one; a model has about 30 per tree."""

_NUMBERS: Final[Mapping[bytes, np.dtype[Any]]] = {
    bytes([mark]): np.dtype(f">{code}")
    for mark, code in zip(b"UiIlLdD", ("u1", "i1", "i2", "i4", "i8", "f4", "f8"), strict=True)
}
_WORDS: Final[Mapping[bytes, bool | None]] = {b"Z": None, b"T": True, b"F": False}
_LENGTH: Final = struct.Struct(">cq")


def read_ubjson(data: bytes) -> Value:
    r"""Parse UBJSON; typed arrays become numpy arrays in the byte order of the file.

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

    def __init__(self, data: bytes) -> None:
        self.data = data
        self.at = self.values = 0

    def value(self, depth: int) -> Value:
        self.values += 1
        if depth > DEPTH_LIMIT or self.values > VALUES_LIMIT:
            raise BundleError(f"UBJSON: deeper than {DEPTH_LIMIT} or more than {VALUES_LIMIT} values, expected a model")
        mark = self.take(1)
        if mark in _NUMBERS:
            return self.numbers(mark, 1)[0].item()
        if mark == b"S":
            return self.text()
        if mark == b"{":
            return self.object(depth)
        if mark == b"[":
            return self.array(depth)
        if mark in _WORDS:
            return _WORDS[mark]
        raise BundleError(f"UBJSON: {mark!r} at byte {self.at - 1}, expected the start of a value")

    def take(self, count: int) -> bytes:
        if count > len(self.data) - self.at:
            raise BundleError(f"UBJSON: cut short at byte {self.at} of {len(self.data)}, expected {count} more")
        self.at += count
        return self.data[self.at - count : self.at]

    def numbers(self, mark: bytes, count: int) -> np.ndarray[Any, np.dtype[Any]]:  # of the type that the mark names
        dtype = _NUMBERS[mark]
        return np.frombuffer(self.take(count * dtype.itemsize), dtype=dtype)

    def length(self) -> int:
        """Read the length of a text or array, which XGBoost always writes as a 64-bit integer."""
        mark, count = _LENGTH.unpack(self.take(_LENGTH.size))
        if mark != b"L" or not 0 <= count <= len(self.data):
            raise BundleError(f"UBJSON: no length before byte {self.at}, expected one of at most {len(self.data)}")
        return int(count)

    def text(self) -> str:
        try:
            return self.take(self.length()).decode()
        except UnicodeDecodeError as error:
            raise BundleError(f"UBJSON: no UTF-8 before byte {self.at}, expected text") from error

    def object(self, depth: int) -> dict[str, Value]:
        members: dict[str, Value] = {}
        while self.data[self.at : self.at + 1] != b"}":
            key = self.text()
            if key in members:
                raise BundleError(f"UBJSON: the key {key[:40]!r} twice, expected once")
            members[key] = self.value(depth + 1)
        self.at += 1
        return members

    def array(self, depth: int) -> Value:
        mark = self.take(1)
        if mark == b"#":
            return [self.value(depth + 1) for _ in range(self.length())]
        kind, then = self.take(1), self.take(1)
        if mark != b"$" or kind not in _NUMBERS or then != b"#":
            raise BundleError(f"UBJSON: an array without type and length before byte {self.at}, expected both")
        return self.numbers(kind, self.length())
