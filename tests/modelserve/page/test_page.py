"""What the page shows: models and what they depend on, a job tried, and recent recommendations; light, dark, small."""

from collections.abc import Callable
from datetime import UTC, datetime, timedelta

import pytest
from playwright.sync_api import Route, expect

from tests.modelserve.page.conftest import KNOWN, SEEN, Running, Visit

pytestmark = pytest.mark.slow

Start = Callable[..., Running]
Visits = Callable[..., Visit]

JOB = {
    "job_id": "a1", "task_type": "ctr", "user": "u1", "group": "g0", "cluster": "pai", "role": "worker",
    "gpu_type": "T4", "instances": 2, "submit_ts": "2020-08-01T09:30:00Z",
    "request": {"cpu_cores": 6, "mem_gib": 29.3, "gpus": 0.5},
}  # fmt: skip
RUN = {
    **JOB, "start_ts": "2020-08-01T09:30:00Z", "end_ts": "2020-08-01T10:30:00Z", "outcome": "completed",
    "allocation": {"cpu_cores": 4.2, "mem_gib": 20.51, "gpus": 0.45},
}  # fmt: skip
HOSTILE = "<img src=x onerror=alert(1)><script>alert(2)</script>"


def test_models_are_shown_with_what_they_depend_on(start: Start, visit: Visits) -> None:
    seen = visit(start())
    page = seen.open()

    assert page.inner_text("#state") == "Answering with 2 models"
    assert page.locator("#models-body tbody tr").count() == 2
    assert "2020-08-01" in page.inner_text("#models-body")
    assert page.locator("#model-detail-body tbody tr").count() == 1
    assert "req_gpus" in page.inner_text("#model-detail-body")
    assert page.locator("#model-detail-body svg .bar").count() == 1
    page.get_by_role("button", name="What usage.pai.ctr depends on").click()
    expect(page.locator("#model-detail-title")).to_contain_text("usage.pai.ctr@5")
    seen.check_quiet()


def test_accuracy_age_and_drift_stand_beside_each_model(start: Start, visit: Visits) -> None:
    seen = visit(start())
    until = (datetime.now(UTC) - timedelta(days=10, hours=1)).isoformat()
    metrics = {"within_2x": 0.64, "coverage_p90": 0.914, "mae_h": 0.5}

    def models(route: Route) -> None:
        said = route.fetch().json()
        first = said["models"][0] | {"metrics": metrics, "until": until}
        failure = {"name": first["name"], "error": "checksums.json: gone"}
        route.fulfill(json=said | {"models": [first, *said["models"][1:]], "failures": [failure]})

    def drift(route: Route) -> None:
        said = route.fetch().json()
        said["models"][0]["verdict"] = "drifted"
        route.fulfill(json=said)

    seen.page.route("**/v1/models", models)
    seen.page.route("**/v1/drift", drift)
    page = seen.open()

    [champion] = page.locator("#models-body table").first.locator("tbody tr").all_inner_texts()
    for each in ("64 %", "91 %", "30 min", "300 jobs", "10 days ago", "drifted"):
        assert each in champion
    assert "checksums.json: gone" in page.inner_text("#models-body .notice.wrong")
    assert page.inner_text("#state") == "Answering with 2 models"
    seen.picture("drifted")


def test_a_job_is_tried(start: Start, visit: Visits) -> None:
    running = start()
    said = running.post("/v1/recommendations", {"jobs": [JOB]})["recommendations"][0]
    seen = visit(running)
    page = seen.open()
    seen.type_job()

    told = seen.ask()

    assert told.startswith("Half of such jobs end within")
    assert "can shrink" in told
    rows = page.locator("#answer table").nth(1).locator("tbody tr").all_inner_texts()
    for row, claimed, target in zip(rows, ("6 cores", "29.3 GiB", "0.5 GPUs"), said["target"].values(), strict=True):
        assert claimed in row
        assert f"{target:.3g}" in row
    assert "shrunk" in page.inner_text("#answer .reasons")
    assert page.locator("#answer .curve").count() == 3
    assert "together (p50)" in page.inner_text("#answer")
    expect(page.locator("#recent-body tbody tr")).to_have_count(2)
    seen.check_quiet()


def test_each_curve_has_its_numbers_beside_it(start: Start, visit: Visits) -> None:
    seen = visit(start())
    page = seen.open()
    seen.type_job()
    seen.ask()

    chart = page.locator("#answer figure").first
    label = chart.get_by_role("img").get_attribute("aria-label")
    chart.locator("summary").click()

    numbers = chart.locator("tbody tr")
    assert label.startswith("CPU cores: predicted run time from")
    assert numbers.count() == chart.locator(".touch").count() > 3
    assert "claimed" in chart.locator("tbody").inner_text()
    points = chart.locator("polyline.line").last.get_attribute("points").split()
    assert len(points) == numbers.count()
    seen.check_quiet()


def test_recent_recommendations_say_why_and_what_they_saved(start: Start, visit: Visits) -> None:
    running = start()
    answer_id = running.post("/v1/recommendations", {"jobs": [JOB]})["answer_id"]
    running.post("/v1/feedback", {"feedback": [{**RUN, "answer_id": answer_id}]})
    running.post("/v1/mode", {"trace": "pai", "task_type": "ctr", "mode": "enforce"})
    seen = visit(running)
    page = seen.open()

    row = page.inner_text("#recent-body tbody tr")

    assert "6 → 4.2" in row
    assert "shrunk" in row
    assert "3.6 cores" in row
    assert "completed after 1 h" in row
    assert "saved 3.6 core-hours" in row
    assert "Together they would free 3.6 of 12 cores (30 %)" in page.inner_text("#recent-says")
    assert "3.6 of 12" in page.inner_text("#realised-body")
    assert "observe by default; enforce for pai / ctr" in page.inner_text("#realised-body")
    seen.check_quiet()


def test_what_callers_named_their_jobs_is_text(start: Start, visit: Visits) -> None:
    running = start()
    running.post("/v1/recommendations", {"jobs": [{**JOB, "job_id": HOSTILE, "task_type": HOSTILE}]})
    seen = visit(running)
    page = seen.open()
    seen.type_job(task_type=HOSTILE, user=HOSTILE)
    seen.ask()

    assert HOSTILE in page.inner_text("#recent-body")
    assert page.locator("img, main script").count() == 0
    assert KNOWN["user"] not in page.url
    assert page.url == f"{running.address}/"
    seen.check_quiet()


@pytest.mark.parametrize(
    ("name", "context"),
    [
        ("light", {}),
        ("dark", {"color_scheme": "dark"}),
        ("phone", {"viewport": {"width": 390, "height": 844}}),
        ("phone-dark", {"viewport": {"width": 320, "height": 640}, "color_scheme": "dark"}),
    ],
)
def test_everything_can_be_read(start: Start, visit: Visits, name: str, context: dict[str, object]) -> None:
    running = start()
    said = running.post("/v1/recommendations", {"jobs": [{**JOB, "job_id": f"a{i}"} for i in range(20)]})
    running.post("/v1/feedback", {"feedback": [{**RUN, "job_id": "a1", "answer_id": said["answer_id"]}]})
    seen = visit(running, **context)
    page = seen.open()
    seen.type_job()
    seen.ask()
    page.wait_for_selector("#answer .curve")
    seen.picture(name)

    met = page.evaluate(SEEN)

    assert met["faint"] == [], "contrast below 4.5"
    assert met["small"] == [], "smaller than 24 pixels"
    assert met["counted"] > 150
    width = page.evaluate("[document.documentElement.scrollWidth, innerWidth]")
    assert width[0] <= width[1], "the page is wider than the screen"
    dark = page.evaluate("getComputedStyle(document.body).backgroundColor")
    assert (dark == "rgb(20, 24, 27)") == ("dark" in name)
    seen.check_quiet()
