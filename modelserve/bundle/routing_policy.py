"""The file of a policy that routes jobs among sites, as JSON."""

from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Final

import numpy as np
from pydantic import BaseModel, ConfigDict, Field, ValidationError

from modelserve.bundle.card import canonical_json, complaint
from modelserve.errors import BundleError
from scheduler_core.errors import BadInput
from scheduler_core.planning.sites import Policy, Support, policy

__all__ = ["TERMS", "RoutingPolicy", "read_routing_policy", "write_routing_policy"]

MOST_BYTES: Final = 1_000_000
TERMS: Final = ("worth_usd_per_gpu_h", "carbon_usd_per_t", "miss_usd", "egress_usd_per_gb", "kwh_per_gb")

Term = Annotated[float, Field(ge=0.0, le=1e6)]
Numbers = tuple[float, ...]


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


class _File(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False)

    name: str
    params: Numbers
    low: Numbers
    high: Numbers
    worth_usd_per_gpu_h: Annotated[float, Field(gt=0.0, le=1e6)]
    carbon_usd_per_t: Term
    miss_usd: Term
    egress_usd_per_gb: Term
    kwh_per_gb: Term


def write_routing_policy(path: Path, made: RoutingPolicy) -> None:
    """Write a policy, which has a support, to a file."""
    if made.support is None:
        raise BundleError(f"{path}: found a policy without support, expected one from training")
    numbers = {"params": made.policy.params, "low": made.support.low, "high": made.support.high}
    terms = {name: getattr(made, name) for name in TERMS}
    path.write_bytes(canonical_json({"name": made.policy.name, **terms, **{k: v.tolist() for k, v in numbers.items()}}))


def read_routing_policy(path: Path) -> RoutingPolicy:
    """Read a policy from a file."""
    if not path.is_file():
        raise BundleError(f"{path}: found no such file, expected a policy; write one with `taut sites train`")
    try:
        with path.open("rb") as stream:
            file = _File.model_validate_json(stream.read(MOST_BYTES))
        return RoutingPolicy(
            policy=policy(file.name, file.params),
            support=Support(low=np.array(file.low), high=np.array(file.high)),
            **{name: getattr(file, name) for name in TERMS},
        )
    except (OSError, ValidationError, BadInput) as error:
        reason = complaint(error) if isinstance(error, ValidationError) else " ".join(str(error).split())[:200]
        raise BundleError(f"{path}: not a policy of `taut sites train` ({reason}); write it again") from error
