"""Train and evaluate models of run time and use, decide on their promotion, and register them in MLflow.

Training and evaluation are functions from frames to boosters and tables, deterministic given a seed. `model` writes
bundles, `tracking` writes to MLflow, and `retrain` runs all steps.
"""

from typing import Final

__all__ = ["NEWEST"]

NEWEST: Final = 500_000
"""Number of newest jobs that models are trained on unless told otherwise; it bounds time and memory."""
