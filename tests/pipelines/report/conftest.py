"""One report of a tiny lake, made once: its sections and its page."""

from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

from pipelines.lake.lake import Lake
from pipelines.report.claims import price_of
from pipelines.report.page import page
from pipelines.report.parts import Section
from pipelines.report.report import Order, sections, subtitle
from tests.deploy.tools import tool
from tests.pipelines.report.tiny import tiny_lake

if TYPE_CHECKING:
    from playwright.sync_api import Browser


@pytest.fixture(scope="module")
def browser() -> Iterator["Browser"]:
    """Return a real Chromium."""
    from playwright.sync_api import sync_playwright

    chromium = tool("chromium")
    with sync_playwright() as playwright:
        launched = playwright.chromium.launch(executable_path=chromium, args=["--no-sandbox"])
        yield launched
        launched.close()


@pytest.fixture(scope="session")
def lake(tmp_path_factory: pytest.TempPathFactory) -> Lake:
    return tiny_lake(tmp_path_factory.mktemp("report-lake"))


@pytest.fixture(scope="session")
def order() -> Order:
    return Order(title="Claims & <use>", price=price_of("2 EUR"))


@pytest.fixture(scope="session")
def made(lake: Lake, order: Order) -> list[Section]:
    """Return the sections about both traces, at 2 EUR a GPU-hour."""
    return sections(lake, ("toy", "bare"), order)


@pytest.fixture(scope="session")
def html(made: list[Section], order: Order) -> str:
    """Return the page of those sections."""
    return page(order.title, subtitle(("toy", "bare"), order), made)
