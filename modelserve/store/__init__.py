"""The one store of the service: feedback, the log of answers, modes, resets, erasures and shadow comparisons.

No meaning is given to the rows here, and nothing outside knows SQL. Called by `modelserve.learning`,
`modelserve.calls.shadow` and `modelserve.answer_log`; opened by `modelserve.service`.
"""

from modelserve.store.store import Store

__all__ = ["Store"]
