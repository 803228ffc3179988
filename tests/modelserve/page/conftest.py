"""The service's page in a real browser: a service over two small models, and a Chromium that reaches nothing else."""

import os
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import httpx2
import pytest
from playwright.sync_api import Browser, Page, Playwright, expect, sync_playwright
from starlette.types import ASGIApp, Receive, Scope, Send

from modelserve.api.app import create_app
from modelserve.service import Service, open_service
from modelserve.settings import ServeSettings
from tests.deploy.tools import tool
from tests.modelserve.mirrored import NAME, USAGE, Folder
from tests.modelserve.running import serving

SEEN = Path(__file__).with_name("seen.js").read_text(encoding="utf-8")
WAIT_MS = 20_000
KNOWN = {
    "user": "u1", "group": "g0", "gpu_type": "T4", "instances": "2",
    "cpu_cores": "6", "mem_gib": "29.3", "gpus": "0.5",
}  # fmt: skip
"""What is typed of a job of which the small models know a hundred like it."""
MORE = {"cluster": "pai", "role": "worker", "submit_ts": "2020-08-01T09:30"}


class Running:
    """A service that runs; `with_settings` lets it go on with others, as after a restart."""

    def __init__(self, service: Service) -> None:
        self.service, self.address = service, ""
        self._app: ASGIApp = create_app(service)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        await self._app(scope, receive, send)

    def with_settings(self, **settings: object) -> None:
        said = ServeSettings(**{**self.service.settings.model_dump(), **settings})
        self._app = create_app(replace(self.service, settings=said))

    def post(self, path: str, body: dict[str, object]) -> dict[str, Any]:
        answer = httpx2.post(f"{self.address}{path}", json=body, timeout=30)
        assert answer.status_code == 200, answer.text
        self.service.log.flush()
        return answer.json()


@dataclass
class Visit:
    """One visit of the page: what the browser said on its console, and every address that it asked for."""

    page: Page
    address: str
    folder: Path
    said: list[str] = field(default_factory=list)
    asked: list[str] = field(default_factory=list)

    def open(self, *, models: bool = True) -> Page:
        self.page.goto(f"{self.address}/")
        self.page.wait_for_selector("#model-detail-body table" if models else "#job-ask:not([disabled])")
        self.page.wait_for_selector("#models:not([aria-busy])")
        self.page.wait_for_selector("#recent:not([aria-busy])")
        return self.page

    def type_job(self, **typed: str) -> None:
        if not self.page.locator("#more").get_attribute("open"):
            self.page.locator("#more").evaluate("each => { each.open = true; }")
        for name, value in {**KNOWN, **MORE, **typed}.items():
            self.page.fill(f"#{name}", value)

    def ask(self) -> str:
        self.page.click("#job-ask")
        self.page.wait_for_selector("#job-ask:not([aria-busy])")
        return self.page.inner_text("#job-says")

    def picture(self, name: str) -> None:
        """Keep what the page looks like, for people to look at."""
        self.folder.mkdir(parents=True, exist_ok=True)
        self.page.evaluate("document.activeElement?.blur()")
        self.page.screenshot(path=self.folder / f"{name}.png", full_page=True)

    def check_quiet(self) -> None:
        """Make sure that nothing went wrong unsaid, and that nobody else was asked for anything."""
        assert self.said == []
        assert {urlsplit(each).netloc for each in self.asked} == {urlsplit(self.address).netloc}


@pytest.fixture(scope="module")
def playwright() -> Iterator[Playwright]:
    # Not for the whole session: while it runs, no other test of the process can run an event loop.
    with sync_playwright() as started:
        expect.set_options(timeout=WAIT_MS)
        yield started


@pytest.fixture(scope="module")
def browser(playwright: Playwright) -> Iterator[Browser]:
    nothing_else = "--host-resolver-rules=MAP * ~NOTFOUND, EXCLUDE 127.0.0.1"
    started = playwright.chromium.launch(executable_path=tool("chromium"), args=[nothing_else])
    yield started
    started.close()


@pytest.fixture
def start(small_bundles: dict[str, Path], tmp_path: Path) -> Iterator[Callable[..., Running]]:
    """Return a starter of services; without `models` they have none."""
    with ExitStack() as stack:

        def make(*, models: bool = True, **settings: object) -> Running:
            folder = Folder(tmp_path / "bundles", small_bundles)
            folder.path.mkdir()
            if models:
                folder.add(NAME, "7")
                folder.add(USAGE, "5")
            said = {"bundles": folder.path, "store": f"sqlite:///{tmp_path}/serve.db", "trace": "pai"}
            service = stack.enter_context(closing(open_service(ServeSettings(**{**said, **settings}))))
            running = Running(service)
            running.address = stack.enter_context(serving(running))
            return running

        yield make


@pytest.fixture
def visit(browser: Browser, tmp_path: Path) -> Iterator[Callable[..., Visit]]:
    """Return a maker of visits, each in a browser context of its own; pictures go to TAUT_SCREENSHOTS."""
    with ExitStack() as stack:

        def make(running: Running, **context: Any) -> Visit:
            made = browser.new_context(**{"viewport": {"width": 1280, "height": 900}, **context})
            stack.callback(made.close)
            made.set_default_timeout(WAIT_MS)
            page = made.new_page()
            folder = Path(os.environ.get("TAUT_SCREENSHOTS") or tmp_path / "screenshots")
            visit = Visit(page=page, address=running.address, folder=folder)
            page.on("console", lambda message: visit.said.append(f"{message.type}: {message.text}"))
            page.on("pageerror", lambda error: visit.said.append(f"error: {error}"))
            page.on("dialog", lambda dialog: (visit.said.append(f"dialog: {dialog.message}"), dialog.dismiss()))
            page.on("request", lambda request: visit.asked.append(request.url))
            return visit

        yield make
