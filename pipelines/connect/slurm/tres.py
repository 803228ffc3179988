"""Slurm's notations in `sacct`'s text: lists of resources, memory, and spans of time.

The lake has the same conversions as SQL (`pipelines.lake.generic.slurm`).
"""

import re
from collections.abc import Mapping
from typing import Final

_MEMORY: Final = re.compile(r"(?P<amount>\d+(?:\.\d+)?)(?P<unit>[KMGTP]?)")
_UNIT_MIB: Final = {"": 1.0, "K": 1 / 1024, "M": 1.0, "G": 1024.0, "T": 1024.0**2, "P": 1024.0**3}
_SPAN: Final = re.compile(r"(?:(?P<d>\d+)-)?(?:(?P<h>\d+):)?(?P<m>\d+):(?P<s>\d+(?:\.\d+)?)")


def counts_of(text: str) -> Mapping[str, str]:
    """Return a list of resources by name.

    >>> counts_of("cpu=2,gres/gpu:t4=1,mem=8G")
    {'cpu': '2', 'gres/gpu:t4': '1', 'mem': '8G'}
    """
    pairs = (part.partition("=") for part in text.split(",") if "=" in part)
    return {name: value for name, _, value in pairs}


def amount_of(text: str) -> float | None:
    """Return a plain number, or None."""
    return float(text) if re.fullmatch(r"\d+(\.\d+)?", text) else None


def mib_of(text: str) -> float | None:
    """Return a text of memory in MiB, its unit if it names none; None if it is not a number.

    >>> mib_of("8G"), mib_of("1536K"), mib_of("100"), mib_of("")
    (8192.0, 1.5, 100.0, None)
    """
    found = _MEMORY.fullmatch(text)
    return None if found is None else float(found["amount"]) * _UNIT_MIB[found["unit"]]


def seconds_of(text: str) -> float | None:
    """Return a span in seconds, or None.

    >>> seconds_of("00:02.197"), seconds_of("1-01:00:01"), seconds_of("")
    (2.197, 90001.0, None)
    """
    found = _SPAN.fullmatch(text)
    if found is None:
        return None
    days, hours, minutes = (int(found[name] or 0) for name in "dhm")
    return days * 86_400.0 + hours * 3_600.0 + minutes * 60.0 + float(found["s"])
