"""The one store of the service: feedback, the log of answers, modes, resets, erasures and shadow comparisons.

Rows are stored here and interpreted elsewhere; no other room contains SQL. Called by `modelserve.learning` and
`modelserve.calls`; opened by `modelserve.service`.

Databases: SQLite and PostgreSQL, by URL. Their differences are in `store` (engines, locks) and `answer_writing`
(placeholders of the driver).
"""

from modelserve.store.store import Store

__all__ = ["Store"]
