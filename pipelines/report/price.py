"""The price of a GPU-hour, given by the user as in `2.50 USD`."""

import math
from dataclasses import dataclass
from typing import Final

from pipelines.errors import BadUsage

__all__ = ["price_of"]

LONGEST_CURRENCY: Final = 12
MOST_AMOUNT: Final = 1e9
"""Maximum price, high enough for any currency and low enough for costs to fit a table cell."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Price:
    """The price of one GPU for one hour; `written` is the amount as the user wrote it."""

    amount: float
    currency: str
    written: str

    def __str__(self) -> str:
        return f"{self.written} {self.currency}"


def price_of(text: str) -> Price:
    """Parse an amount with its currency.

    >>> print(price_of("2.50 USD"))
    2.50 USD
    """
    number, _, currency = text.strip().partition(" ")
    currency = currency.strip()
    try:
        amount = float(number)
    except ValueError:
        amount = math.nan
    if not 0 < amount <= MOST_AMOUNT:
        raise BadUsage(
            f"found the price {text[:40]!r}, expected an amount above 0, at most {MOST_AMOUNT:.0f}, and its currency, "
            "as '2.50 USD'"
        )
    if not currency or len(currency) > LONGEST_CURRENCY or not currency.isprintable():
        raise BadUsage(
            f"found the price {text[:40]!r} without a currency of 1 to {LONGEST_CURRENCY} characters; "
            "expected it after the amount, as '2.50 USD'"
        )
    return Price(amount=amount, currency=currency, written=number)
