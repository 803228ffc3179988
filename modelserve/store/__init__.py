"""The database of the service: changes (feedback, modes, brakes) and the answer log.

All SQL of the service is in this room; `learning` and `calls` give the rows their meaning. The database is SQLite or
PostgreSQL, chosen by URL. Every function that reads or writes raises `StoreError` if the database fails; what it would
have written is then not written.
"""

from modelserve.store.store import Store

__all__ = ["Store"]
