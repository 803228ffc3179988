"""Lists in pages, changes that go on after breaks, and refusals."""

from itertools import islice

import httpx2
import pytest

from pipelines.connect.kubernetes.api import TIMEOUT, ApiServer, open_api_server
from pipelines.errors import BadUsage, ConnectError
from tests.pipelines.connect.kubernetes.fake import Cluster, api_server

PODS = "/api/v1/pods"


def pod(name: str, version: str = "1") -> dict[str, object]:
    return {"metadata": {"name": name, "resourceVersion": version}}


def event(change: str, name: str, version: str) -> dict[str, object]:
    return {"type": change, "object": pod(name, version)}


def opened(url: str) -> ApiServer:
    return ApiServer(client=httpx2.Client(base_url=url, timeout=TIMEOUT), token_file=None, sleep=lambda _: None)


def test_a_list_is_read_in_pages() -> None:
    cluster = Cluster({PODS: [pod(f"p{i}") for i in range(5)]})

    with api_server(cluster) as url:
        found, version = opened(url).listed(PODS)

    assert [each["metadata"]["name"] for each in found] == [f"p{i}" for i in range(5)]
    assert version == "7"
    assert [query.get("continue") for query in cluster.queries] == [None, "2", "4"]


def test_changes_go_on_where_a_watch_ended_and_begin_anew_when_it_is_gone() -> None:
    cluster = Cluster({PODS: [pod("a")]})
    gone = {"type": "ERROR", "object": {"kind": "Status", "code": 410}}
    cluster.watches[PODS] = [
        [event("ADDED", "b", "8"), event("BOOKMARK", "", "9")],
        [event("DELETED", "b", "10"), gone],
    ]

    with api_server(cluster) as url:
        found = list(islice(opened(url).changes(PODS, "Pod"), 6))

    assert [(change, each.get("metadata", {}).get("name")) for change, each in found] == [
        ("RESET", None), ("ADDED", "a"), ("ADDED", "b"), ("DELETED", "b"), ("RESET", None), ("ADDED", "a"),
    ]  # fmt: skip
    assert {each["kind"] for _, each in found} == {"Pod"}
    assert [query["resourceVersion"] for query in cluster.queries if "watch" in query] == ["7", "9"]


def test_a_refusal_names_the_path() -> None:
    cluster = Cluster({PODS: []})
    cluster.status = 403

    with api_server(cluster) as url, pytest.raises(ConnectError, match="/api/v1/pods replied 403"):
        opened(url).listed(PODS)


def test_followers_log_a_refusal_and_ask_again(caplog: pytest.LogCaptureFixture) -> None:
    cluster = Cluster({PODS: []})
    cluster.status = 403

    def allow(_: float) -> None:
        cluster.status = 200

    with api_server(cluster) as url, httpx2.Client(base_url=url, timeout=TIMEOUT) as client:
        server = ApiServer(client=client, token_file=None, sleep=allow)
        assert next(server.changes(PODS, "Pod")) == ("RESET", {"kind": "Pod"})

    assert "GET /api/v1/pods replied 403; expected a list; see that the account may list it" in caplog.text


def test_an_absent_server_is_named() -> None:
    with pytest.raises(ConnectError, match=r"127\.0\.0\.1:9"):
        opened("http://127.0.0.1:9").listed(PODS)


def test_outside_a_cluster_an_address_is_expected(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("KUBERNETES_SERVICE_HOST", raising=False)

    with pytest.raises(BadUsage, match="--api-server"):
        open_api_server(None)
