"""MLflow's manners: no telemetry, no chatter, no minutes of retries; settled before it is imported.

MLflow itself is not imported here. Called by the two files that do: `pipelines.models.tracking` and
`modelserve.bundle.registry`.
"""

import os
import re
import warnings
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Final
from urllib.parse import urlsplit, urlunsplit

ENVIRONMENT: Final = {
    "MLFLOW_DISABLE_TELEMETRY": "true",
    "MLFLOW_ENABLE_SYSTEM_METRICS_LOGGING": "false",
    "MLFLOW_ENABLE_ARTIFACTS_PROGRESS_BAR": "false",
    "MLFLOW_SUPPRESS_PRINTING_URL_TO_STDOUT": "true",
    "MLFLOW_LOGGING_LEVEL": "ERROR",
    "MLFLOW_HTTP_REQUEST_MAX_RETRIES": "2",
    "MLFLOW_HTTP_REQUEST_BACKOFF_FACTOR": "1",
    "MLFLOW_HTTP_REQUEST_TIMEOUT": "20",
}
"""What MLflow reads at its import and at each call; a value that the user has set stands."""

REASONS: Final[Mapping[str, str]] = {
    "NameResolutionError": "its host is not known",
    "gaierror": "its host is not known",
    "ConnectTimeoutError": "no connection in time",
    "ReadTimeoutError": "no answer in time",
    "Read timed out": "no answer in time",
    "SSLError": "no trusted TLS connection",
    "NewConnectionError": "no connection",
    "ConnectionError": "no connection",
    "Max retries exceeded": "no answer",
    "RemoteDisconnected": "the connection broke off",
    "error code 401": "it asks for other credentials",
    "error code 403": "it asks for other credentials",
}
"""What the texts of the network's libraries come to, the first that is found."""

UNKNOWN: Final = "RESOURCE_DOES_NOT_EXIST"
"""MLflow's code for what is not there."""


@contextmanager
def quietly() -> Iterator[None]:
    """Hold back MLflow's chatter and its warnings: stdout is data, and stderr is our own talk."""
    for name, value in ENVIRONMENT.items():
        os.environ.setdefault(name, value)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield


def in_short(error: Exception) -> str:
    r"""Say in a few words why a call to MLflow failed.

    Examples
    --------
    >>> in_short(OSError("HTTPConnectionPool(host='h'): Max retries exceeded (Caused by NewConnectionError('...'))"))
    'no connection'
    >>> in_short(ValueError("no such run\nsecond line"))
    'ValueError: no such run'
    """
    text = str(error).strip()
    if getattr(error, "error_code", None) != UNKNOWN and re.search(r"API request to|ConnectionPool|Max retries", text):
        return next((short for found, short in REASONS.items() if found in text), "no answer that it should give")
    said = text.splitlines()
    return f"{type(error).__name__}: {said[0][:200] if said else 'no word'}"


def is_unknown(error: Exception) -> bool:
    """Tell whether MLflow says that what was asked for is not there."""
    return getattr(error, "error_code", None) == UNKNOWN


def without_password(uri: str) -> str:
    """Return an address that may be shown.

    Examples
    --------
    >>> without_password("https://me:secret@registry:5000/x"), without_password("sqlite:///a.db")
    ('https://registry:5000/x', 'sqlite:///a.db')
    """
    parts = urlsplit(uri)
    return uri if "@" not in parts.netloc else urlunsplit(parts._replace(netloc=parts.netloc.rpartition("@")[2]))
