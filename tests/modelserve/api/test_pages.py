"""The service's page as files: whole, guarded, revalidated, without a token, and no part of the API's document."""

import re
from collections.abc import Callable
from importlib.resources import files

import pytest
from starlette.testclient import TestClient

from modelserve.api.pages import PATHS
from tests.modelserve.api.conftest import TOKENS
from tests.modelserve.api.test_gate import check_problem

Make = Callable[..., TestClient]

FOLDER = files("modelserve") / "page"


@pytest.mark.parametrize("path", PATHS)
def test_a_file_is_sent_as_it_is_and_needs_no_token(call: Make, path: str) -> None:
    answer = call(tokens=TOKENS).get(path)

    assert answer.status_code == 200
    assert answer.content == (FOLDER / PATHS[path]).read_bytes()
    policy = answer.headers["content-security-policy"]
    assert "default-src 'none'" in policy
    assert "unsafe" not in policy
    assert answer.headers["x-content-type-options"] == "nosniff"


def test_every_file_of_the_folder_is_sent() -> None:
    assert sorted(PATHS.values()) == sorted(each.name for each in FOLDER.iterdir())


@pytest.mark.parametrize("none_match", ["{}", "W/{}", '"other", {}', "*"])
def test_a_file_that_is_at_hand_is_not_sent_again(call: Make, none_match: str) -> None:
    client = call()
    tag = client.get("/page/app.js").headers["etag"]

    again = client.get("/page/app.js", headers={"if-none-match": none_match.format(tag)})
    other = client.get("/page/app.js", headers={"if-none-match": '"other"'})

    assert (again.status_code, again.content, again.headers["etag"]) == (304, b"", tag)
    assert other.status_code == 200
    assert again.headers["cache-control"] == "no-cache"


def test_the_rules_of_the_gate_hold(call: Make) -> None:
    client = call()

    check_problem(client.get("/?token=secret"), 422)
    check_problem(client.get("/page/nothing.js"), 404)
    refused = client.post("/")
    check_problem(refused, 405)
    assert refused.headers["allow"] == "GET, HEAD"
    assert client.head("/").content == b""


def test_its_calls_are_counted_by_path(call: Make) -> None:
    client = call()
    client.get("/page/app.js")

    assert re.search(r'taut_requests_total\{[^}]*route="/page/app.js"[^}]*\} 1.0', client.get("/metrics").text)


def test_the_page_loads_its_own_files_only() -> None:
    page = (FOLDER / "index.html").read_text(encoding="utf-8")

    loaded = re.findall(r'(?:href|src)="([^"#]+)"', page)

    assert {each for each in loaded if each.startswith("page/")} <= {path.removeprefix("/") for path in PATHS}
    assert set(loaded) - {path.removeprefix("/") for path in PATHS} == {"docs", "openapi.json"}
    assert not re.search(r"<script>|\son\w+=|\sstyle=|<style", page)


@pytest.mark.parametrize("name", [name for name in PATHS.values() if name.endswith(".js")])
def test_no_script_parses_markup_or_leaves_the_service(name: str) -> None:
    text = (FOLDER / name).read_text(encoding="utf-8")

    assert not re.search(r"innerHTML|outerHTML|insertAdjacentHTML|document\.write|eval\(|new Function", text)
    assert re.findall(r"https?://[^\"'\s]+", text) in ([], ["http://www.w3.org/2000/svg"])
    assert len(text.splitlines()) <= 250
