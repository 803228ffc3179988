"""The service's typed client: calls, tries and answers, for callers that wait and for those that do not.

No model and no data frame is loaded here. Called by schedulers, scripts and the commands.
"""

from modelserve.client.advice import Advice
from modelserve.client.asynchronous import AsyncClient
from modelserve.client.policy import Retries, Timeouts
from modelserve.client.synchronous import Client

__all__ = ["Advice", "AsyncClient", "Client", "Retries", "Timeouts"]
