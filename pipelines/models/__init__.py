"""Train and evaluate models of run time and use, decide on their promotion, and register them in MLflow."""

from typing import Final

__all__ = ["NEWEST"]

NEWEST: Final = 500_000
"""Number of newest jobs that models are trained on unless told otherwise; it bounds time and memory."""
