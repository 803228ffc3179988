"""Kubernetes quantities such as `500m`, `1.5Gi` and `2e3`: parse them exactly, and write amounts rounded up."""

import math
import re
from fractions import Fraction
from typing import Final

__all__ = ["BadQuantity", "cores_text", "memory_text", "quantity"]

MIB: Final = 2**20

_DECIMAL: Final = {"n": -9, "u": -6, "m": -3, "": 0, "k": 3, "M": 6, "G": 9, "T": 12, "P": 15, "E": 18}
_BINARY: Final = {"Ki": 10, "Mi": 20, "Gi": 30, "Ti": 40, "Pi": 50, "Ei": 60}
_QUANTITY: Final = re.compile(
    r"\+?(\d{1,20}(?:\.\d{0,20})?|\.\d{1,20})(?:([numkMGTPE]|[KMGTPE]i)|[eE]([+-]?\d{1,2}))?", re.A
)


class BadQuantity(ValueError):
    """A value that is not a quantity of at least 0."""


def quantity(value: object) -> Fraction:
    """Return the exact number of a quantity, in cores, bytes or units; numbers of JSON are quantities, too.

    Examples
    --------
    >>> [float(quantity(text)) for text in ("500m", "1.5", "2e3", "4Ki", 3)]
    [0.5, 1.5, 2000.0, 4096.0, 3.0]
    """
    if isinstance(value, bool) or not isinstance(value, str | int | float):
        raise BadQuantity(f"found {type(value).__name__}, expected a quantity such as 500m or 4Gi")
    found = _QUANTITY.fullmatch(str(value))
    if found is None:
        raise BadQuantity(f"found {str(value)[:40]!r}, expected a quantity such as 500m or 4Gi")
    number, suffix, exponent = found.groups()
    scale: Fraction = (
        Fraction(2) ** _BINARY[suffix] if suffix in _BINARY else Fraction(10) ** int(exponent or _DECIMAL[suffix or ""])
    )
    return Fraction(number) * scale


def cores_text(cores: Fraction) -> str:
    """Return an amount of CPU as a quantity, rounded up to a thousandth of a core.

    >>> cores_text(Fraction("1.2601")), cores_text(Fraction(2))
    ('1261m', '2')
    """
    milli = math.ceil(cores * 1000)
    return f"{milli}m" if milli % 1000 else str(milli // 1000)


def memory_text(size_bytes: Fraction) -> str:
    """Return an amount of memory as a quantity, rounded up to a MiB.

    >>> memory_text(Fraction(3.39) * 2**30), memory_text(Fraction(2**31))
    ('3472Mi', '2Gi')
    """
    mib = math.ceil(size_bytes / MIB)
    return f"{mib}Mi" if mib % 1024 else f"{mib // 1024}Gi"
