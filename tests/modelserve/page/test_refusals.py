"""What the page says where something is refused: bad fields, unknown types, no models, tokens, an absent service."""

import hashlib
from collections.abc import Callable
from typing import Any

import pytest
from playwright.sync_api import Route, expect

from tests.modelserve.page.conftest import Running, Visit

pytestmark = pytest.mark.slow

Start = Callable[..., Running]
Visits = Callable[..., Visit]


def token(text: str, **bounds: object) -> dict[str, object]:
    digest = hashlib.sha256(text.encode()).hexdigest()
    return {"name": text, "sha256": digest, "scopes": ["predict"], **bounds}


def enter(seen: Visit, text: str) -> None:
    seen.page.fill("#token", text)
    seen.page.get_by_role("button", name="Use it").click()


@pytest.mark.parametrize(
    ("name", "typed", "said"),
    [
        ("gpus", "many", "Expected a number"),
        ("cpu_cores", "-1", "at least 0"),
        ("mem_gib", "1e9", "at most"),
        ("instances", "0", "at least 1"),
        ("instances", "1.5", "whole number"),
        ("theta", "2", "at most 1"),
        ("task_type", "", "the kind of job"),
    ],
)
def test_a_bad_field_is_marked_and_gone_to(start: Start, visit: Visits, name: str, typed: str, said: str) -> None:
    seen = visit(start())
    page = seen.open()
    seen.type_job(**{name: typed})
    page.locator("#more").evaluate("each => { each.open = false; }")

    told = seen.ask()

    field = page.locator(f"#{name}")
    assert told == "Not asked: 1 field to mend."
    assert field.get_attribute("aria-invalid") == "true"
    assert said in page.inner_text(f"#{field.get_attribute('aria-describedby')}")
    assert page.evaluate("document.activeElement.id") == name
    assert not page.locator("#answer").is_visible()
    seen.picture(f"refused-{name}-{typed or 'empty'}")

    page.fill(f"#{name}", {"task_type": "ctr"}.get(name, "1"))
    assert seen.ask().startswith("Half of such jobs")
    assert page.locator(".fault").count() == 0


def test_a_type_that_no_model_is_for_stands_as_claimed(start: Start, visit: Visits) -> None:
    seen = visit(start())
    page = seen.open()
    seen.type_job(task_type="speech")

    told = seen.ask()

    assert told == "No run time can be predicted. The request stands as claimed."
    assert "no model runtime.pai.speech" in page.inner_text("#answer")
    assert page.inner_text("#answer .reasons").count("too little known") == 3
    assert page.locator("#answer .curve").count() == 0
    seen.picture("unknown-type")
    seen.check_quiet()


def test_a_service_without_models_says_so(start: Start, visit: Visits) -> None:
    seen = visit(start(models=False))
    page = seen.open(models=False)

    assert page.inner_text("#state") == "No model serves"
    assert "taut train" in page.inner_text("#models-body")
    assert "No recommendation is in the log yet" in page.inner_text("#recent-body")
    seen.type_job(task_type="ctr")
    assert seen.ask() == "No run time can be predicted. The request stands as claimed."
    seen.picture("no-models")
    seen.check_quiet()


def test_a_token_is_asked_for_and_kept_for_the_tab_only(start: Start, visit: Visits) -> None:
    running = start(tokens=[token("s3cret")])
    seen = visit(running)
    page = seen.open(models=False)

    assert page.inner_text("#access-why") == "This service needs a token."
    assert page.evaluate("document.activeElement.id") == "token"
    assert page.locator("#models-body table").count() == 0
    seen.picture("token-needed")
    enter(seen, "wrong")
    expect(page.locator("#access-why")).to_contain_text("not accepted")
    enter(seen, "s3cret")
    page.wait_for_selector("#model-detail-body table")
    assert not page.locator("#access").is_visible()

    page.reload()
    page.wait_for_selector("#model-detail-body table")
    assert page.evaluate("[localStorage.length, document.cookie]") == [0, ""]
    assert not any("s3cret" in each for each in seen.asked)
    assert page.input_value("#token") == ""
    page.get_by_role("button", name="Token in use").click()
    page.get_by_role("button", name="Forget it").click()
    expect(page.locator("#access-why")).to_contain_text("needs a token")
    assert page.evaluate("sessionStorage.length") == 0


def test_a_token_that_has_expired_takes_what_it_showed_with_it(start: Start, visit: Visits) -> None:
    running = start(tokens=[token("old")])
    seen = visit(running)
    page = seen.open(models=False)
    enter(seen, "old")
    page.wait_for_selector("#model-detail-body table")

    running.with_settings(tokens=[token("new")])
    seen.type_job()
    told = seen.ask()

    assert told.startswith("The token is not accepted: it has expired")
    assert "expired" in page.inner_text("#access-why")
    assert page.inner_text("#state") == "Not shown"
    assert page.locator("#models-body table, #answer table, #recent-body table").count() == 0
    seen.picture("token-expired")
    enter(seen, "new")
    page.wait_for_selector("#model-detail-body table")
    assert page.input_value("#user") == "u1", "what was typed is still there"
    assert seen.ask().startswith("Half of such jobs")


def test_a_token_that_does_not_reach_says_how_far_it_does(start: Start, visit: Visits) -> None:
    seen = visit(start(tokens=[token("bound", clusters=["c1"])]))
    page = seen.open(models=False)
    enter(seen, "bound")
    page.wait_for_selector("#model-detail-body table")
    seen.type_job(cluster="c2")

    told = seen.ask()

    assert told.startswith("The token does not reach that far")
    assert "c1" in told
    assert page.locator("#models-body table").count() == 2, "what is within reach stays"


def test_a_token_without_the_scope_is_told(start: Start, visit: Visits) -> None:
    seen = visit(start(tokens=[{**token("reporter"), "scopes": ["feedback"]}]))
    page = seen.open(models=False)

    enter(seen, "reporter")

    expect(page.locator("#access-why")).to_contain_text("lacks the scope predict")
    assert "lacks the scope predict" in page.inner_text("#models-says")


@pytest.mark.parametrize(
    ("answer", "said"),
    [
        ({"status": 429, "headers": {"retry-after": "3"}, "json": {"detail": "too many"}}, "try again in 3 s"),
        ({"status": 503, "json": {"detail": "64 calls are waiting"}}, "cannot answer now: 64 calls are waiting"),
        ({"status": 500, "body": "<h1>gateway</h1>", "content_type": "text/html"}, "status 500"),
        ({"status": 200, "body": "no JSON"}, "status 200"),
    ],
)
def test_what_cannot_be_answered_now_is_told(start: Start, visit: Visits, answer: dict[str, Any], said: str) -> None:
    seen = visit(start())
    page = seen.open()
    page.route("**/v1/recommendations", lambda route: route.fulfill(**answer))
    seen.type_job()

    assert said in seen.ask()
    page.get_by_role("button", name="Refresh recommendations").click()
    expect(page.locator("#recent-says")).to_contain_text(said)
    assert not page.locator("#access").is_visible()


def test_an_answer_to_a_token_that_was_forgotten_is_not_shown(start: Start, visit: Visits) -> None:
    seen = visit(start(tokens=[token("s3cret")]))
    page = seen.open(models=False)
    held: list[Route] = []

    def hold_those_with_a_token(route: Route) -> None:
        if "authorization" in route.request.headers:
            held.append(route)
        else:
            route.continue_()

    page.route("**/v1/models", hold_those_with_a_token)
    enter(seen, "s3cret")
    page.get_by_role("button", name="Token in use").click()

    page.get_by_role("button", name="Forget it").click()
    expect(page.locator("#access-why")).to_contain_text("needs a token")
    page.evaluate("""() => {
      const shown = document.getElementById("models-body");
      window.everShown = false;
      const seen = () => { window.everShown ||= shown.childElementCount > 0; };
      new MutationObserver(seen).observe(shown, {childList: true});
    }""")
    with page.expect_response("**/v1/models"):
        held[0].continue_()
    page.wait_for_load_state("networkidle")

    assert page.inner_text("#access-why") == "This service needs a token."
    assert page.evaluate("window.everShown") is False
    assert page.inner_text("#state") == "Not shown"


def test_a_service_that_has_gone_is_told_of(start: Start, visit: Visits) -> None:
    seen = visit(start())
    page = seen.open()
    page.context.set_offline(True)

    page.get_by_role("button", name="Refresh models").click()

    expect(page.locator("#state")).to_have_text("No answer")
    assert "did not answer" in page.inner_text("#models-says")
    assert page.locator("#models-body table").count() == 2, "what was shown stays"
    assert "did not answer" in seen.ask()
