"""The one store of the service: feedback, the log of answers, modes, resets, erasures and shadow comparisons.

No meaning is given to the rows here, and nothing outside knows SQL. Called by `modelserve.{feed, feedback, answer_log,
modes, drift, erasure}`.
"""

from modelserve.store.store import Store

__all__ = ["Store"]
