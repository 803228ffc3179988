"""UBJSON written the way XGBoost writes it, so that tests can change one thing in a model file."""

import struct
from typing import Any  # whatever a test puts into a file

import numpy as np

MARKS = {"u1": b"U", "i1": b"i", "i2": b"I", "i4": b"l", "i8": b"L", "f4": b"d", "f8": b"D"}


def write_ubjson(value: Any) -> bytes:  # whatever a test puts into a file
    if isinstance(value, dict):
        return b"{" + b"".join(_length(key.encode()) + write_ubjson(each) for key, each in value.items()) + b"}"
    if isinstance(value, np.ndarray):
        written = value.astype(value.dtype.newbyteorder(">"))
        return b"[$" + MARKS[value.dtype.str[1:]] + b"#" + _count(len(value)) + written.tobytes()
    if isinstance(value, list):
        return b"[#" + _count(len(value)) + b"".join(map(write_ubjson, value))
    if isinstance(value, str):
        return b"S" + _length(value.encode())
    if isinstance(value, int):
        return next(
            mark + struct.pack(code, value)
            for mark, code, bits in ((b"i", ">b", 7), (b"I", ">h", 15), (b"l", ">i", 31), (b"L", ">q", 63))
            if -(1 << bits) <= value < 1 << bits
        )
    raise TypeError(f"{type(value)} is not written")


def _count(count: int) -> bytes:
    return b"L" + struct.pack(">q", count)


def _length(text: bytes) -> bytes:
    return _count(len(text)) + text
