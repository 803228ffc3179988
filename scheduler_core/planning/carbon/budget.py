"""Carry the grams that a period of a long-term carbon cap leaves unused over to later periods, in a bank (ours).

The carbon patent takes the budget as given. Intensity cancels in the marginal benefit of a step, so it affects a plan
only through the budget. Called by the carbon study before and after every round.
"""

from dataclasses import dataclass, replace

from scheduler_core.errors import BadInput

__all__ = ["Bank"]


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
