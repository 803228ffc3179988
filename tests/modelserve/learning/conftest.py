"""Services around one store, without models: the workers of one machine."""

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from tests.modelserve.feedback_cases import service_of


@pytest.fixture
def serve(tmp_path: Path) -> Iterator[Callable[..., Any]]:
    """Return a maker of services around one store, all closed with the test."""
    with ExitStack() as stack:

        def make(models: Any = None, **settings: Any) -> Any:
            opened = service_of(tmp_path / "serve.db", models, **settings)
            stack.callback(opened.store.close)
            return opened

        yield make


@pytest.fixture
def service(serve: Callable[..., Any]) -> Any:
    """Return the first of the services."""
    return serve()
