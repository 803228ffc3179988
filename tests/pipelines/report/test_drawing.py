"""When charts of a long page are drawn in a real Chromium: near what is seen, when idle, before print, or at once."""

from collections.abc import Callable, Iterator
from pathlib import Path

import polars as pl
import pytest
from playwright.sync_api import Browser, Page, expect

from pipelines.report.models import importances
from pipelines.report.page import page
from pipelines.report.parts import Figure, Section

pytestmark = pytest.mark.slow
CHARTS = 60
WAIT_MS = 60_000
NEVER_IDLE = "window.requestIdleCallback = () => 0;"
COUNTED_AFTER_PRINT = """addEventListener("afterprint", () => {
  window.printed = document.querySelectorAll(".chart svg").length;
});"""

Open = Callable[..., Page]


@pytest.fixture(scope="module")
def long(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a page of many screens, of one importance drawn again and again."""
    rows = pl.DataFrame({"feature": [f"f{i}" for i in range(10)], "mean": [1.0 / (i + 1) for i in range(10)]})
    rows = rows.with_columns(std=pl.lit(0.05), repeats=pl.lit(5))
    chart = importances(rows, "model", "pinball, ln s", "99 rows")
    drawn = tuple(Figure(name=f"importance-{at}", chart=chart, rows=rows) for at in range(CHARTS))
    section = Section(name="part", title="Part", intro="Made up.", parts=drawn)
    file = tmp_path_factory.mktemp("long") / "report.html"
    file.write_text(page("Long", "Made up", [section]), encoding="utf-8")
    return file


@pytest.fixture
def opened(browser: Browser, long: Path) -> Iterator[Open]:
    """Return an opener of the page, after a script of the visitor's browser."""
    contexts = []

    def make(script: str) -> Page:
        context = browser.new_context(viewport={"width": 1280, "height": 900})
        contexts.append(context)
        context.add_init_script(script)
        visit = context.new_page()
        visit.goto(long.as_uri())
        expect(visit.locator(".chart svg").first).to_be_visible(timeout=WAIT_MS)
        return visit

    yield make
    for each in contexts:
        each.close()


def test_what_is_far_from_the_screen_waits_until_it_is_near(opened: Open) -> None:
    visit = opened(NEVER_IDLE)

    assert 1 <= visit.locator(".chart svg").count() < CHARTS / 2
    assert visit.locator(".chart").last.locator("svg").count() == 0
    for at in range(CHARTS):
        place = visit.locator(".chart").nth(at)
        place.scroll_into_view_if_needed()
        expect(place.locator("svg")).to_have_count(1, timeout=WAIT_MS)

    expect(visit.locator("html[data-drawn]")).to_have_count(1)
    assert visit.locator(".chart.failed").count() == 0


@pytest.mark.parametrize("script", ["", NEVER_IDLE + "delete window.IntersectionObserver;"], ids=["idle", "at once"])
def test_the_rest_is_drawn_when_idle_or_without_an_observer_at_once(opened: Open, script: str) -> None:
    visit = opened(script)

    visit.wait_for_selector("html[data-drawn]", timeout=WAIT_MS)

    assert visit.locator(".chart svg").count() == CHARTS


def test_paper_has_every_chart_though_nobody_scrolled(opened: Open) -> None:
    visit = opened(NEVER_IDLE + COUNTED_AFTER_PRINT)

    visit.pdf()

    assert visit.evaluate("window.printed") == CHARTS
