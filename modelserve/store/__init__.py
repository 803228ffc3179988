"""The database of the service: feedback, the answer log, modes, brakes, erasures and shadow comparisons.

All SQL of the service is in this package; the meaning of the rows is known to `modelserve.learning` and
`modelserve.calls`, which call it. Opened by `modelserve.service`.

The database is SQLite or PostgreSQL, chosen by URL. Their differences are handled in `store` (engines, locks) and
`answer_writing` (placeholders of the driver).
"""

from modelserve.store.store import Store

__all__ = ["Store"]
