"""Train and evaluate models of run time and use, decide on their promotion, and register them in MLflow."""

from typing import Final

__all__ = ["NEWEST"]

NEWEST: Final = 500_000
"""Default number of newest jobs on which models are trained; it bounds time and memory."""
