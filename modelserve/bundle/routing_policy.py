"""The file of a policy that routes jobs among sites: arrays and numbers as .npz, without pickle."""

import zlib
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final
from zipfile import BadZipFile, ZipFile

import numpy as np

from modelserve.errors import BundleError
from scheduler_core.errors import BadInput
from scheduler_core.planning.sites import Policy, Support, policy
from scheduler_core.types import FloatArray

__all__ = ["TERMS", "RoutingPolicy", "read_routing_policy", "write_routing_policy"]

MOST_BYTES: Final = 1_000_000
MOST_TERM: Final = 1e6
ARRAYS: Final = {"name": "U", "params": "f", "support": "f", "terms": "f"}
"""Arrays of the file, with the kind of their type."""
TERMS: Final = ("worth_usd_per_gpu_h", "carbon_usd_per_t", "miss_usd", "egress_usd_per_gb", "kwh_per_gb")


@dataclass(frozen=True, slots=True, kw_only=True)
class RoutingPolicy:
    """A policy, the support of its training, and the terms of the utility that it was trained for.

    By default the greedy rule with the terms of the regimes B, which needs no training.
    """

    policy: Policy = field(default_factory=lambda: policy("greedy"))
    support: Support | None = None
    worth_usd_per_gpu_h: float = 0.10
    carbon_usd_per_t: float = 80.0
    miss_usd: float = 0.5
    egress_usd_per_gb: float = 0.05
    kwh_per_gb: float = 0.03


def write_routing_policy(path: Path, made: RoutingPolicy) -> None:
    """Write a policy, which has a support, to a file."""
    if made.support is None:
        raise BundleError(f"{path}: found a policy without support, expected one from training")
    with path.open("wb") as file:
        np.savez(
            file,
            name=np.array(made.policy.name),
            params=made.policy.params,
            support=np.stack([made.support.low, made.support.high]),
            terms=np.array([getattr(made, name) for name in TERMS]),
        )


def read_routing_policy(path: Path) -> RoutingPolicy:
    """Read a policy from a file."""
    if not path.is_file():
        raise BundleError(f"{path}: found no such file, expected a policy; write one with `taut sites train`")
    try:
        arrays = _arrays(path)
        low, high = arrays["support"]
        terms = dict(zip(TERMS, map(float, arrays["terms"]), strict=True))
        if not all(0.0 <= value <= MOST_TERM for value in terms.values()) or not terms["worth_usd_per_gpu_h"]:
            raise ValueError(f"terms: found {[*terms.values()]}, expected 0 to {MOST_TERM:g}, the first above 0")
        return RoutingPolicy(
            policy=policy(str(arrays["name"]), arrays["params"].tolist()),
            support=Support(low=low, high=high),
            **terms,
        )
    except (OSError, ValueError, TypeError, KeyError, EOFError, MemoryError, BadZipFile, BadInput, zlib.error) as error:
        said = " ".join(str(error).split())[:200] or type(error).__name__
        raise BundleError(f"{path}: not a policy of `taut sites train` ({said}); write it again") from error


def _arrays(path: Path) -> dict[str, FloatArray]:
    """Return the arrays of a file; their unpacked size is checked before any is unpacked."""
    with path.open("rb") as opened, ZipFile(opened) as packed:
        size = sum(each.file_size for each in packed.infolist())
        if size > MOST_BYTES:
            raise ValueError(f"{size} bytes unpacked, expected at most {MOST_BYTES}")
    with np.load(path, allow_pickle=False) as file:
        arrays: dict[str, FloatArray] = {key: file[key] for key in ARRAYS}
    for key, kind in ARRAYS.items():
        if arrays[key].dtype.kind != kind:
            raise ValueError(f"{key}: found type {arrays[key].dtype}")
    return arrays
