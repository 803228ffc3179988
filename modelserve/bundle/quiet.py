"""Configure MLflow before its import (no telemetry, less log output, few retries), and shorten its error messages."""

import os
import re
import warnings
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Final
from urllib.parse import urlsplit, urlunsplit

__all__ = ["in_short", "is_unknown", "quietly", "without_password"]

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
"""Environment variables that MLflow reads at import and at each call; values set by the user are kept."""

REASONS: Final[Mapping[str, str]] = {
    "NameResolutionError": "unknown host",
    "gaierror": "unknown host",
    "ConnectTimeoutError": "the connection timed out",
    "ReadTimeoutError": "the request timed out",
    "Read timed out": "the request timed out",
    "SSLError": "no trusted TLS connection",
    "NewConnectionError": "no connection",
    "ConnectionError": "no connection",
    "Max retries exceeded": "no response",
    "RemoteDisconnected": "the connection was closed",
    "error code 401": "credentials were refused",
    "error code 403": "credentials were refused",
}
"""Short reasons of network errors, keyed by a text that the error's message contains; the first match is used."""

UNKNOWN: Final = "RESOURCE_DOES_NOT_EXIST"
"""Error code of MLflow for an object that does not exist."""


@contextmanager
def quietly() -> Iterator[None]:
    """Suppress MLflow's output and warnings, since stdout is for data and stderr for this project's messages."""
    for name, value in ENVIRONMENT.items():
        os.environ.setdefault(name, value)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield


def in_short(error: Exception) -> str:
    r"""Return in a few words the reason why a call to MLflow failed.

    >>> in_short(OSError("HTTPConnectionPool(host='h'): Max retries exceeded (Caused by NewConnectionError('...'))"))
    'no connection'
    >>> in_short(ValueError("no such run\nsecond line"))
    'ValueError: no such run'
    """
    text = str(error).strip()
    if getattr(error, "error_code", None) != UNKNOWN and re.search(r"API request to|ConnectionPool|Max retries", text):
        return next((short for found, short in REASONS.items() if found in text), "unexpected response")
    lines = text.splitlines()
    return f"{type(error).__name__}: {lines[0][:200] if lines else 'no message'}"


def is_unknown(error: Exception) -> bool:
    """Return whether the error means that the requested object does not exist in MLflow."""
    return getattr(error, "error_code", None) == UNKNOWN


def without_password(uri: str) -> str:
    """Return an address without its user name and password.

    >>> without_password("https://me:secret@registry:5000/x"), without_password("sqlite:///a.db")
    ('https://registry:5000/x', 'sqlite:///a.db')
    """
    parts = urlsplit(uri)
    return uri if "@" not in parts.netloc else urlunsplit(parts._replace(netloc=parts.netloc.rpartition("@")[2]))
