"""Split a long-term carbon cap into budgets of single periods, and carry unused grams over in a bank (both ours).

The carbon patent takes the budget as given. Intensity cancels in the marginal benefit of a step, so it affects a plan
only through the budget. Called by the carbon study before and after every round.
"""

from dataclasses import dataclass, replace

import numpy as np

from scheduler_core.errors import BadInput
from scheduler_core.types import FloatArray

__all__ = ["Bank"]


def shares_g(cap_g: float, weights: FloatArray) -> FloatArray:
    """Split a cap in grams on the emissions of all P periods in proportion to weights; return the shares (P,).

    Equal weights let jobs use less energy in hours of high intensity. Weights proportional to the expected intensity
    let them use the same energy in all hours. With weights proportional to expected demand, budgets follow demand.

    Raises
    ------
    BadInput
        If the cap or a weight is negative or not a number, or all weights are 0.

    Examples
    --------
    >>> shares_g(1000.0, np.array([1.0, 3.0]))
    array([250., 750.])
    """
    if not 0.0 <= cap_g < np.inf:
        raise BadInput(f"carbon budget: found a cap of {cap_g} g, expected 0 or more")
    total = float(weights.sum())
    if not (weights >= 0.0).all() or not 0.0 < total < np.inf:
        raise BadInput("carbon budget: found weights that are negative, not numbers or all 0; expected some above 0")
    return np.asarray(cap_g * (weights / total), dtype=np.float64)


@dataclass(frozen=True, slots=True, kw_only=True)
class Bank:
    """Account of the grams left unused by earlier periods, at most `most_g`; negative if they emitted too much.

    A plan emits at most `allowance_g`, so all plans together emit at most the sum of the shares. Actual emissions can
    exceed a plan because run times are predicted; later periods are then allowed less.

    Examples
    --------
    >>> bank = Bank(most_g=30.0).after(share_g=100.0, spent_g=60.0)
    >>> bank.balance_g, bank.allowance_g(share_g=100.0)
    (30.0, 130.0)
    """

    most_g: float
    balance_g: float = 0.0

    def __post_init__(self) -> None:
        if not self.most_g >= 0.0 or not self.balance_g <= self.most_g:
            raise BadInput(
                f"carbon bank: found a balance of {self.balance_g} g and a limit of {self.most_g} g, expected a limit "
                "of 0 or more and a balance within it"
            )

    def allowance_g(self, *, share_g: float) -> float:
        """Return the grams that a period may emit: its share plus the balance, at least 0."""
        return max(share_g + self.balance_g, 0.0)

    def after(self, *, share_g: float, spent_g: float) -> "Bank":
        """Return the bank after a period that emitted `spent_g`; a balance above `most_g` is cut to `most_g`.

        Raises
        ------
        BadInput
            If the share or the emissions are negative or not a number.
        """
        if not (share_g >= 0.0 and spent_g >= 0.0):
            raise BadInput(f"carbon bank: found a share of {share_g} g and {spent_g} g emitted, expected 0 or more")
        return replace(self, balance_g=min(self.balance_g + share_g - spent_g, self.most_g))
