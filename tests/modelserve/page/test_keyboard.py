"""The page without a mouse and without eyes: every control is reached, seen to be reached, and has a name."""

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass

import pytest
from playwright.sync_api import CDPSession, Page, expect

from tests.modelserve.page.conftest import SEEN, Running, Visit

pytestmark = pytest.mark.slow

Start = Callable[..., Running]
Visits = Callable[..., Visit]

TABS_LIMIT = 200
PICTURES = {"image", "table", "region"}
"""Roles without a focus that say nothing without a name."""


@dataclass(frozen=True, kw_only=True)
class Spoken:
    """What a screen reader is told of one node of the page."""

    role: str
    name: str
    focusable: bool


def spoken(session: CDPSession) -> list[Spoken]:
    """Return the accessibility tree, flat."""
    nodes = session.send("Accessibility.getFullAXTree")["nodes"]
    return [
        Spoken(
            role=each["role"]["value"],
            name=each.get("name", {}).get("value", ""),
            focusable=any(p["name"] == "focusable" and p["value"]["value"] for p in each.get("properties", ())),
        )
        for each in nodes
        if not each.get("ignored", True)
    ]


def tab_through(page: Page) -> list[str]:
    """Press Tab from the top of the page until it leaves; return what had the focus, as `tag#id text`."""
    # Where the focus was last is where Tab goes on from: that has to be the top.
    page.evaluate("document.body.tabIndex = -1; document.body.focus(); document.body.removeAttribute('tabindex')")
    met: list[str] = []
    for _ in range(TABS_LIMIT):
        page.keyboard.press("Tab")
        each, ringed = page.evaluate(
            """() => {
              const node = document.activeElement;
              if (node === document.body) return [null, true];
              const style = getComputedStyle(node);
              const ring = style.outlineStyle !== "none" && parseFloat(style.outlineWidth) >= 2;
              const text = node.getAttribute("aria-label") ?? node.innerText;
              return [`${node.localName}#${node.id} ${text.slice(0, 60)}`, ring];
            }"""
        )
        if each is None:
            return met
        assert ringed, f"{each}: the focus cannot be seen"
        if not met or met[-1] != each:  # a date has several parts
            met.append(each)
    raise AssertionError(f"the focus never leaves the page: {met[-5:]}")


def test_every_control_is_reached_by_tab_in_the_order_of_the_page(start: Start, visit: Visits) -> None:
    seen = visit(start())
    page = seen.open()
    seen.type_job()
    seen.ask()
    page.get_by_role("button", name="Token").click()
    expect(page.locator("#recent-body tbody tr")).to_have_count(1)

    met = tab_through(page)

    assert len(met) == page.evaluate(SEEN)["controls"]
    ids = [each.split()[0] for each in met if not each.split()[0].endswith("#")]
    assert met[0].endswith("Skip to trying a job")
    for first, then in [
        ("input#token", "button#models-refresh"),
        ("button#models-refresh", "select#trace"),
        ("select#trace", "input#task_type"),
        ("input#cpu_cores", "input#mem_gib"),
        ("input#theta", "button#job-ask"),
        ("button#job-ask", "button#recent-refresh"),
    ]:
        assert ids.index(first) < ids.index(then)


def test_everything_that_is_spoken_has_a_name(start: Start, visit: Visits) -> None:
    seen = visit(start())
    page = seen.open()
    seen.type_job(gpus="many")
    seen.ask()
    seen.type_job()
    seen.ask()
    for summary in page.locator("#answer summary").all():
        summary.click()

    said = spoken(page.context.new_cdp_session(page))

    roles = Counter(each.role for each in said)
    nameless = [each.role for each in said if (each.focusable or each.role in PICTURES) and not each.name.strip()]
    assert nameless == []
    assert sum(each.focusable for each in said) > 40
    for landmark in ("banner", "main", "navigation", "contentinfo", "region"):
        assert landmark in roles
    headings = {each.name for each in said if each.role == "heading"}
    assert {"taut", "Models", "What runtime.pai.ctr@7 depends on", "Try a job", "Recent recommendations"} <= headings
    assert roles["image"] == 3
    assert roles["table"] >= 9
    assert page.locator("[role=status]").count() >= 4


def test_a_job_is_tried_by_keyboard_alone(start: Start, visit: Visits) -> None:
    seen = visit(start())
    page = seen.open()
    keys = page.keyboard

    keys.press("Tab")
    keys.press("Enter")
    assert page.evaluate("document.activeElement.id") == "try"
    for name, typed in (("trace", ""), ("task_type", "ctr"), ("user", "u1"), ("group", "g0")):
        keys.press("Tab")
        assert page.evaluate("document.activeElement.id") == name
        if typed:
            keys.press("Control+A")
            keys.type(typed)
    keys.press("Escape")
    keys.press("Enter")
    page.wait_for_selector("#answer .curve")
    assert page.evaluate("document.activeElement.id") == "group", "the answer takes no focus away"
    expect(page.locator("#job-says")).to_contain_text("Half")

    page.locator("#answer summary").first.focus()
    keys.press("Enter")
    assert page.locator("#answer details[open]").count() == 1
    seen.check_quiet()


def test_a_token_is_given_by_keyboard_alone(start: Start, visit: Visits) -> None:
    running = start()
    seen = visit(running)
    page = seen.open()

    page.locator("#token-toggle").focus()
    page.keyboard.press("Space")
    assert page.locator("#token-toggle").get_attribute("aria-expanded") == "true"
    assert page.evaluate("document.activeElement.id") == "token"
    page.keyboard.type("any")
    page.keyboard.press("Enter")

    expect(page.locator("#token-toggle")).to_have_text("Token in use")
    assert not page.locator("#access").is_visible()
    seen.check_quiet()
