"""The page in a real Chromium: all charts drawn, nothing fetched, nothing on the console, no sideways scrolling."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Browser, Page

from pipelines.report.page import csv_of
from pipelines.report.parts import Section
from tests.pipelines.report.tiny import ATTACK, figures, tables

pytestmark = pytest.mark.slow
WAIT_MS = 60_000
DESK, PHONE = (1280, 900), (360, 740)


class Visit:
    """One look at the page: what it asked for beside itself, and what it said on the console."""

    def __init__(self, browser: Browser, file: Path, size: tuple[int, int]) -> None:
        self.asked: list[str] = []
        self.said: list[str] = []
        context = browser.new_context(viewport={"width": size[0], "height": size[1]})
        self.page: Page = context.new_page()
        self.page.on("request", lambda request: self.asked.append(request.url))
        self.page.on("console", lambda message: self.said.append(message.text))
        self.page.on("pageerror", lambda error: self.said.append(str(error)))
        self.page.goto(file.as_uri())
        self.page.wait_for_selector("html[data-drawn]", timeout=WAIT_MS)


@pytest.fixture(scope="module")
def file(html: str, tmp_path_factory: pytest.TempPathFactory) -> Path:
    place = tmp_path_factory.mktemp("page") / "report.html"
    place.write_text(html, encoding="utf-8")
    return place


@pytest.fixture(scope="module", params=[DESK, PHONE], ids=["desk", "phone"])
def visit(request: pytest.FixtureRequest, browser: Browser, file: Path) -> Iterator[Visit]:
    opened = Visit(browser, file, request.param)
    yield opened
    opened.page.context.close()


def test_every_chart_is_drawn_and_nothing_is_fetched(visit: Visit, made: list[Section], file: Path) -> None:
    assert visit.page.locator(".chart svg").count() == len(figures(made))
    assert visit.page.locator(".chart.failed").count() == 0
    assert visit.asked == [file.as_uri()]
    assert visit.said == []


def test_the_page_does_not_scroll_sideways_and_no_chart_is_cut(visit: Visit) -> None:
    width = visit.page.viewport_size["width"]  # type: ignore[index]

    assert visit.page.evaluate("document.documentElement.scrollWidth") <= width
    cut = visit.page.evaluate(
        "[...document.querySelectorAll('.chart')].filter(each =>"
        " each.querySelector('svg').getBoundingClientRect().width > each.getBoundingClientRect().width + 1).length"
    )
    assert cut == 0


def test_no_text_of_a_chart_is_cut(visit: Visit) -> None:
    cut = visit.page.evaluate(
        """[...document.querySelectorAll('.chart svg')].flatMap(chart => {
            const [own, texts] = [chart.getBoundingClientRect(), [...chart.querySelectorAll('text')]];
            const beyond = box => box.width && (box.left < own.left - 1 || box.right > own.right + 1);
            return texts.filter(each => beyond(each.getBoundingClientRect())).map(each => each.textContent);
        })"""
    )
    assert cut == []


def test_texts_of_charts_can_be_searched_and_a_name_that_attacks_is_text(visit: Visit) -> None:
    texts = visit.page.evaluate("[...document.querySelectorAll('.chart svg text')].map(each => each.textContent)")

    assert any("n (jobs)" in text for text in texts)
    assert any(text.startswith(ATTACK[:8]) for text in texts)
    assert visit.page.title() == "Claims & <use>"
    assert visit.page.locator("img").count() == 0


def test_a_table_is_saved_as_its_csv(visit: Visit, made: list[Section], tmp_path: Path) -> None:
    with visit.page.expect_download() as waited:
        visit.page.locator("#table-over_claim a.download").click()
    target = tmp_path / "saved.csv"
    waited.value.save_as(target)

    assert waited.value.suggested_filename == "over_claim.csv"
    assert target.read_text(encoding="utf-8") == csv_of(tables(made)["over_claim"].rows)


def test_a_script_that_is_not_the_pages_own_does_not_run(visit: Visit) -> None:
    visit.page.evaluate(
        "() => { const script = document.createElement('script');"
        " script.textContent = \"document.body.dataset.ran = 'yes'\"; document.body.append(script); }"
    )

    assert visit.page.evaluate("document.body.dataset.ran ?? null") is None
    visit.said.clear()


def test_paper_shows_charts_and_tables_without_what_can_only_be_clicked(browser: Browser, file: Path) -> None:
    page = Visit(browser, file, DESK).page
    page.emulate_media(media="print")

    assert page.locator("a.download").first.is_hidden()
    assert page.locator("nav").is_hidden()
    assert page.locator(".chart svg").first.is_visible()
    assert page.pdf().startswith(b"%PDF")
    page.context.close()
