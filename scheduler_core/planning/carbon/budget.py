"""Budgets of periods from a cap over many, and a bank for what was not given off (both ours).

The source takes a period's budget as given. As intensity cancels in the marginal benefit, budgets are where awareness
of carbon comes from. Called before every round, and with what was given off after it.
"""

from dataclasses import dataclass, replace

import numpy as np

from scheduler_core.errors import BadInput
from scheduler_core.types import FloatArray


def shares_g(cap_g: float, weights: FloatArray) -> FloatArray:
    """Return each period's share (P,) of a cap over all of them, such as a month's, in proportion to its weight.

    Equal weights let jobs draw less in dirty hours; weights like the expected intensity let them draw the same in all;
    weights like the expected demand follow the jobs. The shares sum to the cap.

    Raises
    ------
    BadInput
        If the cap or a weight is negative or no number, or all weights are 0.

    Examples
    --------
    >>> shares_g(1000.0, np.array([1.0, 3.0]))
    array([250., 750.])
    """
    if not 0.0 <= cap_g < np.inf:
        raise BadInput(f"carbon budget: found a cap of {cap_g} g, expected 0 or more")
    total = float(weights.sum())
    if not (weights >= 0.0).all() or not 0.0 < total < np.inf:
        raise BadInput("carbon budget: found weights that are negative, no numbers or all 0; expected some above 0")
    return np.asarray(cap_g * (weights / total), dtype=np.float64)


@dataclass(frozen=True, slots=True, kw_only=True)
class Bank:
    """What earlier periods left, at most `most_g`; below 0 it is what they took too much, and is owed.

    No plan passes `allowance_g`, so that plans alone never take more than was shared out. What a period truly gave off
    may differ from its plan, as run times are predicted; then the next ones have less.

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
                f"carbon bank: found {self.balance_g} g of at most {self.most_g} g, expected a limit of 0 or more, and "
                "no more than it"
            )

    def allowance_g(self, *, share_g: float) -> float:
        """Return what a period may give off: its share and what is banked, less what is owed; never below 0."""
        return max(share_g + self.balance_g, 0.0)

    def after(self, *, share_g: float, spent_g: float) -> "Bank":
        """Return the bank after a period that gave off `spent_g`; what passes `most_g` is lost.

        Raises
        ------
        BadInput
            If the share or what was given off is negative or no number.
        """
        if not (share_g >= 0.0 and spent_g >= 0.0):
            raise BadInput(f"carbon bank: found a share of {share_g} g and {spent_g} g given off, expected 0 or more")
        return replace(self, balance_g=min(self.balance_g + share_g - spent_g, self.most_g))
