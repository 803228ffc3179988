"""Opening a report of many models in Chromium: the load event, the CPU until then, and when every chart stands.

Medians of several visits; a page is made up unless a written report is named. `python -m tests.benchmarks.report`.
"""

import shutil
import sys
import tempfile
from argparse import ArgumentParser
from collections.abc import Sequence
from pathlib import Path
from statistics import median

from playwright.sync_api import Browser, sync_playwright

from pipelines.render import render
from pipelines.report.page import page
from tests.pipelines.report.many import many_charts

CHARTS = 63
"""As many as a report of ten models holds."""
RUNS = 5
LOAD_BAR_S = 2.0
_FIRST = """new MutationObserver((_, self) => {
  if (!document.querySelector(".chart svg")) return;
  window.firstChartMs = performance.now();
  self.disconnect();
}).observe(document, { childList: true, subtree: true });"""

Row = dict[str, object]


def visit(browser: Browser, file: Path) -> tuple[float, ...]:
    """Return seconds to the load event, of CPU of the page's process until then, to the first chart, and to all."""
    context = browser.new_context(viewport={"width": 1280, "height": 900})
    context.add_init_script(_FIRST)
    opened = context.new_page()
    session = context.new_cdp_session(opened)
    session.send("Performance.enable")

    def cpu_s() -> float:
        found = {each["name"]: each["value"] for each in session.send("Performance.getMetrics")["metrics"]}
        return float(found["ProcessTime"])

    before_s = cpu_s()
    opened.goto(file.as_uri())
    load_cpu_s = cpu_s() - before_s
    load_ms = opened.evaluate("performance.getEntriesByType('navigation')[0].loadEventEnd")
    opened.wait_for_selector("html[data-drawn]", state="attached", timeout=120_000)
    drawn_ms = float(opened.evaluate("document.documentElement.dataset.drawn"))
    first_ms = float(opened.evaluate("window.firstChartMs"))
    context.close()
    return load_ms / 1e3, load_cpu_s, first_ms / 1e3, drawn_ms / 1e3


def measure(chromium: str, file: Path, charts: int | None) -> Row:
    """Open a report `RUNS` times, each in a context of its own, and return the medians."""
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=chromium, args=["--no-sandbox"])
        visits = [visit(browser, file) for _ in range(RUNS)]
        browser.close()
    load_s, cpu_s, first_s, drawn_s = (median(column) for column in zip(*visits, strict=True))
    return {
        "page_mb": round(file.stat().st_size / 1e6, 1),
        "charts": charts,
        "load_event_s": load_s,
        "load_bar_s": LOAD_BAR_S,
        "load_cpu_s": cpu_s,
        "first_chart_s": first_s,
        "all_drawn_s": drawn_s,
        "visits": RUNS,
    }


def main(argv: Sequence[str] | None = None) -> None:
    """Print one row: a page of `CHARTS` charts, or the report named."""
    parser = ArgumentParser(prog="python -m tests.benchmarks.report", description=__doc__)
    parser.add_argument("--page", type=Path, help="an existing report, instead of a synthetic one")
    named: Path | None = parser.parse_args(argv).page
    chromium = shutil.which("chromium")
    if chromium is None:
        print("opening a report is not measured: chromium is not installed", file=sys.stderr)
        return
    with tempfile.TemporaryDirectory() as folder:
        file = named or Path(folder) / "report.html"
        if named is None:
            file.write_text(page("Many charts", "Made up", many_charts(CHARTS)), encoding="utf-8")
        render([measure(chromium, file, CHARTS if named is None else None)], "table", stream=sys.stdout)


if __name__ == "__main__":
    main()
