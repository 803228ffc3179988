"""What the page says of answers that shrink to a floor, of jobs that were only tried, and of run times far apart."""

import re
from collections.abc import Callable
from typing import Any

import pytest
from playwright.sync_api import Page, Route, expect

from tests.modelserve.page.conftest import Running, Visit
from tests.modelserve.page.test_page import JOB

pytestmark = pytest.mark.slow

Start = Callable[..., Running]
Visits = Callable[..., Visit]
FLOORS = {"cpu_cores": "floor", "mem_gib": "floor", "gpus": "floor"}


def with_recommendation(page: Page, **said: object) -> None:
    """Answer every recommendation that the page asks for with other words."""

    def answer(route: Route) -> None:
        if route.request.method != "POST":
            route.continue_()
            return
        whole = route.fetch().json()
        route.fulfill(json=whole | {"recommendations": [whole["recommendations"][0] | said]})

    page.route("**/v1/recommendations", answer)


@pytest.mark.parametrize(
    ("target", "told", "badges"),
    [
        ({"cpu_cores": 3.0, "mem_gib": 12.0, "gpus": 0.5}, "2 resources can shrink.", ["ok", "ok", "kept"]),
        ({"cpu_cores": 6.0, "mem_gib": 29.3, "gpus": 0.5}, "The request stands as claimed.", ["kept", "kept", "kept"]),
    ],
    ids=["smaller", "as-claimed"],
)
def test_a_resource_at_its_floor_shrinks_where_the_floor_is_below_the_claim(
    start: Start, visit: Visits, target: dict[str, float], told: str, badges: list[str]
) -> None:
    seen = visit(start())
    page = seen.open()
    with_recommendation(page, target=target, reasons=FLOORS)
    seen.type_job()

    said = seen.ask()

    assert said.endswith(told)
    shown = page.locator("#answer .reasons .badge").evaluate_all("all => all.map(each => each.classList[1])")
    assert shown == badges
    seen.check_quiet()


@pytest.mark.parametrize(
    ("modes", "says"),
    [
        (["enforce", "enforce"], "Together they free 7.2 of 24 cores (30 %)"),
        (["observe", "observe"], "Together they would free 7.2 of 24 cores (30 %)"),
        (["enforce", "observe"], "Those enforced free 3.6 of 12 cores (30 %)"),
    ],
)
def test_what_is_observed_would_free_and_tries_of_the_page_are_in_no_sum(
    start: Start, visit: Visits, modes: list[str], says: str
) -> None:
    running = start()
    for mode, name in zip(modes, ("a1", "a2"), strict=True):
        running.post("/v1/mode", {"trace": "pai", "task_type": "ctr", "mode": mode})
        running.post("/v1/recommendations", {"jobs": [{**JOB, "job_id": name}]})
    seen = visit(running)
    page = seen.open()
    seen.type_job()
    seen.ask()
    expect(page.locator("#recent-body tbody tr")).to_have_count(3)

    said = page.inner_text("#recent-says")

    assert said.startswith("3 jobs. ")
    assert says in said
    assert ("Those observed only would free 3.6 of 12 cores" in said) == (set(modes) == {"enforce", "observe"})
    assert "1 try on this page" in said
    seen.check_quiet()


@pytest.mark.parametrize(("p90", "is_log"), [(300.0, False), (14_400.0, True)])
def test_a_p50_far_below_its_p90_is_drawn_on_a_log_scale(start: Start, visit: Visits, p90: float, is_log: bool) -> None:
    seen = visit(start())

    def answer(route: Route) -> None:
        whole: dict[str, Any] = route.fetch().json()
        times = [{"p50": 100.0 + 20.0 * (i % 2), "p90": p90} for i in range(len(whole["points"]))]
        points = [each | {"run_time_s": said} for each, said in zip(whole["points"], times, strict=True)]
        route.fulfill(json=whole | {"points": points})

    seen.page.route("**/v1/what-if", answer)
    page = seen.open()
    seen.type_job()
    seen.ask()

    chart = page.locator("#answer .curve").first
    drawn = chart.locator("polyline.line").last.get_attribute("points")
    heights = [float(pair.partition(",")[2]) for pair in str(drawn).split()]
    assert ("log scale" in str(chart.text_content())) == is_log
    assert max(heights) - min(heights) > 3
    assert chart.locator("line.grid").count() >= 2
    seen.picture(f"curve-{'log' if is_log else 'linear'}")
    seen.check_quiet()


def test_the_group_is_named_with_the_role_that_was_measured(start: Start, visit: Visits) -> None:
    seen = visit(start())
    page = seen.open()
    seen.type_job(role="")
    seen.ask()

    said = page.inner_text("#other-role")
    runs = int(re.search(r"This group has (\d+) measured runs in role worker", said)[1])
    assert "none in role job (the field is empty)" in said
    page.get_by_role("button", name="Ask with role worker").click()
    page.wait_for_selector("#other-role", state="detached")
    assert page.input_value("#role") == "worker"
    assert f"{runs} measured runs of jobs like it" in page.inner_text("#answer")
    seen.check_quiet()


def test_times_of_a_trace_that_hides_its_dates_are_days_of_the_trace(start: Start, visit: Visits) -> None:
    seen = visit(start())
    asked = []

    def models(route: Route) -> None:
        said = route.fetch().json()
        route.fulfill(json=said | {"models": [each | {"until": "1970-03-03T19:40:45Z"} for each in said["models"]]})

    def recommendations(route: Route) -> None:
        if route.request.method == "POST":
            asked.append(route.request.post_data_json["jobs"][0]["submit_ts"])
        route.continue_()

    seen.page.route("**/v1/models", models)
    seen.page.route("**/v1/recommendations", recommendations)
    page = seen.open()
    seen.type_job(submit_ts="")
    seen.ask()

    assert "day 62 of the trace" in page.inner_text("#models-body")
    assert "1970" not in page.inner_text("main")
    assert "empty: the end of the history" in page.inner_text("label[for=submit_ts]")
    assert asked == ["1970-03-03T19:40:45Z"]
    assert "before the history ends." in page.inner_text("#answer")
    seen.check_quiet()
