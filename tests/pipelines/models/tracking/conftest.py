import warnings
from collections.abc import Iterator

import pytest


@pytest.fixture(scope="session")
def uri(tmp_path_factory: pytest.TempPathFactory) -> str:
    """Return a database that these tests share, as MLflow takes seconds to make one: each has models of its own."""
    return f"sqlite:///{tmp_path_factory.mktemp('tracking')}/deep/mlflow.db"


@pytest.fixture
def mlflow_of(uri: str) -> Iterator[object]:
    """Return MLflow as a user has it, pointed at the database."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        import mlflow

        mlflow.set_tracking_uri(uri)
        yield mlflow
        mlflow.set_tracking_uri(None)


@pytest.fixture
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MLFLOW_HTTP_REQUEST_MAX_RETRIES", "0")
