"""The database of the service: changes (feedback, modes, brakes) and the answer log.

All SQL of the service is in this room; `learning` and `calls` give the rows their meaning. The database is SQLite or
PostgreSQL, chosen by URL. If the database fails, every function raises `StoreError` and writes nothing.
"""

from modelserve.store.store import Store

__all__ = ["Store"]
