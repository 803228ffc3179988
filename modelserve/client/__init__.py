"""Clients of the service: blocking (`Client`) and asynchronous (`AsyncClient`).

The clients load no model and no data frame library.
"""

from modelserve.client.advice import Advice
from modelserve.client.asynchronous import AsyncClient
from modelserve.client.policy import Breaker, Retries, Timeouts
from modelserve.client.synchronous import Client

__all__ = ["Advice", "AsyncClient", "Breaker", "Client", "Retries", "Timeouts"]
