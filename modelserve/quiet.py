"""MLflow's manners: no telemetry, no chatter, no minutes of retries; settled before it is imported.

MLflow itself is not imported here. Called by the two files that do: `pipelines.tracking` and `modelserve.registry`.
"""

import os
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

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


@contextmanager
def quietly() -> Iterator[None]:
    """Hold back MLflow's chatter and its warnings: stdout is data, and stderr is our own talk."""
    for name, value in ENVIRONMENT.items():
        os.environ.setdefault(name, value)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield
