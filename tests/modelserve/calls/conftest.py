"""A service over two small models, for all calls of a file that leave nothing behind."""

from pathlib import Path

import pytest

from modelserve.service import Service
from tests.modelserve.answering import folder_of, service_of


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory, small_bundles: dict[str, Path]) -> Path:
    return folder_of(tmp_path_factory.mktemp("mirror"), small_bundles).path


@pytest.fixture(scope="module")
def service(place: Path) -> Service:
    return service_of(place)
