"""The arms of the study: combinations of placement, target workload, and rule for ties.

Nothing is simulated here. Called by the other modules of this study and by the charts.

References: Weng et al., Beware of Fragmentation, USENIX ATC 2023, and the results published with its simulator.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import polars as pl

from pipelines.errors import BadUsage
from scheduler_core.errors import BadInput
from scheduler_core.sharing_placements import Ties
from scheduler_core.target import check_popularity

FGD: Final = "fgd"
RANDOM: Final = "random"

POLICIES: Final = {
    RANDOM: "01-Random",
    "dot_product": "02-DotProd",
    "gpu_clustering": "03-GpuClustering",
    "gpu_packing": "04-GpuPacking",
    "best_fit_gpu": "05-BestFit",
    FGD: "06-FGD",
}
"""Name of each placement in the published results; the placement that leaves most GPUs unallocated is first."""

DEFAULT: Final = "default"
"""The pod list of the recorded trace; the other lists were derived from it by its publishers."""

PUBLISHED_POPULARITY: Final = 0.95
POPULARITIES: Final = (PUBLISHED_POPULARITY, 1.0)
FIRST_TIES: Final[Ties] = "first"
RANDOM_TIES: Final[Ties] = "random"
TIES: Final = (FIRST_TIES, RANDOM_TIES)
"""Rules for choosing among nodes with equal scores: the first in the order of nodes (published), or a random one.

The order of nodes is drawn for each seed. The published simulator chooses the smallest name among ties, but it prefixes
names with numbers that are permuted by the seed.
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Arm:
    """One way to place the same pods.

    The target workload consists of the most frequent request shapes, up to the share `popularity` of all pods. FGD
    minimises fragmentation for this workload; for other placements it only serves to measure fragmentation.
    """

    policy: str
    popularity: float
    ties: Ties = FIRST_TIES

    @property
    def columns(self) -> dict[str, object]:
        """Return the columns that identify the arm; popularity and tie rule are null if the placement ignores them."""
        aim = self.popularity if self.policy == FGD else None
        ties = self.ties if self.policy != RANDOM else None
        return {"policy": self.policy, "popularity": aim, "ties": ties}


def is_arm(popularity: float, ties: str = FIRST_TIES) -> pl.Expr:
    """Return an expression that selects rows by popularity and tie rule; a null in either column matches any value.

    The placement is not checked. `is_arm(PUBLISHED_POPULARITY)` selects the settings of the published results.
    """
    aims, rules = pl.col("popularity"), pl.col("ties")
    return (aims.is_null() | (aims == popularity)) & (rules.is_null() | (rules == ties))


def arms_of(policies: Sequence[str] | None, popularities: Sequence[float], ties: Sequence[str]) -> tuple[Arm, ...]:
    """Return all combinations: popularities are varied for FGD only, tie rules for all placements but `random`.

    Raises
    ------
    BadUsage
        If a placement or a tie rule is unknown, or a popularity is not a share.

    Examples
    --------
    >>> len(arms_of(None, (0.95, 1.0), ("first", "random")))
    13
    """
    asked = list(dict.fromkeys(policies or POLICIES))
    for what, given, known in (("placement", asked, POLICIES), ("tie rule", ties, TIES)):
        if strange := [name for name in given if name not in known]:
            raise BadUsage(f"no {what} {strange[0]!r}; expected {', '.join(known)}")
    try:
        for share in popularities:
            check_popularity(share)
    except BadInput as error:
        raise BadUsage(str(error)) from error
    return tuple(
        Arm(policy=policy, popularity=share, ties=rule)
        for policy in POLICIES
        if policy in asked
        for share in dict.fromkeys(popularities if policy == FGD else popularities[:1])
        for rule in TIES
        if (rule in ties if policy != RANDOM else rule == FIRST_TIES)
    )
