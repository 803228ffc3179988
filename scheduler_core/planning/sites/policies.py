"""The policies that route jobs among sites, by name, with their parameters.

The compiled decisions are in `scheduler_core.kernels.sites`. Called by `routing` and `pipelines.simulation.sites`.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final

import numpy as np

from scheduler_core.errors import BadInput
from scheduler_core.kernels.sites.deciding import ROLLING, SCORER
from scheduler_core.kernels.sites.rules import RULES
from scheduler_core.kernels.sites.scoring import FEATURES
from scheduler_core.types import FloatArray

__all__ = ["POLICIES", "Policy", "policy"]

POLICIES: Final = {**{name: code for code, name in enumerate(RULES)}, "rolling": ROLLING, "scorer": SCORER}
"""Code of each policy in the compiled decisions."""

PARAMS: Final = {"rolling": 2, "scorer": len(FEATURES)}
"""Number of parameters; 0 for policies not named."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Policy:
    """A policy and its parameters.

    `rolling` has patience (share of a job's worth that a day of waiting costs) and bid price (share of its worth that
    its gain must exceed); `scorer` has one weight per feature.
    """

    name: str
    params: FloatArray = field(default_factory=lambda: np.zeros(0))

    @property
    def rule(self) -> int:
        """Return the code of the policy in the compiled decisions."""
        return POLICIES[self.name]


def policy(name: str, params: Sequence[float] = ()) -> Policy:
    """Return a policy by name.

    Raises
    ------
    BadInput
        If the name is unknown, or the parameters are not finite or not as many as the policy has.
    """
    if name not in POLICIES:
        raise BadInput(f"policy: found {name[:40]!r}, expected one of {', '.join(POLICIES)}")
    values, wanted = np.asarray(params, dtype=np.float64), PARAMS.get(name, 0)
    if values.shape != (wanted,) or not np.isfinite(values).all():
        found = f"{int(np.isfinite(values).sum())} finite parameters of shape {values.shape}"
        raise BadInput(f"policy {name}: found {found}, expected {wanted} finite ones")
    return Policy(name=name, params=values)
