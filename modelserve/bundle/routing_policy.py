"""The file of a policy that routes jobs among sites: arrays and numbers as .npz, without pickle.

Written by `taut sites train`; read by the service and by `taut sites evaluate`.
"""

import io
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final
from zipfile import BadZipFile

import numpy as np

from modelserve.errors import BundleError
from scheduler_core.errors import BadInput
from scheduler_core.planning.sites.policies import Policy, policy
from scheduler_core.planning.sites.routing import Support
from scheduler_core.types import FloatArray

__all__ = ["TERMS", "RoutingPolicy", "read_routing_policy", "write_routing_policy"]

MOST_BYTES: Final = 1_000_000
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
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("wb") as file:
        np.savez(
            file,
            name=np.array(made.policy.name),
            params=made.policy.params,
            support=np.stack([made.support.low, made.support.high]),
            terms=np.array([getattr(made, name) for name in TERMS]),
        )


def read_routing_policy(path: Path) -> RoutingPolicy:
    """Read a policy from a file.

    Raises
    ------
    BundleError
        If the file is missing, larger than 1 MB, or no such policy.
    """
    try:
        if path.stat().st_size > MOST_BYTES:
            raise BundleError(f"{path}: found {path.stat().st_size} bytes, expected at most {MOST_BYTES}")
        with np.load(io.BytesIO(path.read_bytes()), allow_pickle=False) as file:
            name, params, support, terms = (_read(file, key) for key in ("name", "params", "support", "terms"))
        chosen = policy(str(name), params.tolist())
    except (OSError, ValueError, KeyError, EOFError, BadZipFile, BadInput) as error:
        raise BundleError(f"{path}: not a policy of `taut sites train` ({error}); write it again") from error
    if support.ndim != 2 or len(support) != 2 or terms.shape != (len(TERMS),) or not np.isfinite(terms).all():
        raise BundleError(f"{path}: found support {support.shape} and terms {terms.shape}; write it again")
    return RoutingPolicy(
        policy=chosen,
        support=Support(low=support[0], high=support[1]),
        **dict(zip(TERMS, map(float, terms), strict=True)),
    )


def _read(file: "np.lib.npyio.NpzFile", key: str) -> FloatArray:
    found: FloatArray = file[key]
    if found.nbytes > MOST_BYTES:
        raise ValueError(f"{key} has {found.nbytes} bytes")
    return found
