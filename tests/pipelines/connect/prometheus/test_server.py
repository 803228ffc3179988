"""Foreign HTTP: what a server may do wrong ends in a bounded number of attempts and an error of one line."""

from pathlib import Path

import httpx2
import pytest

from pipelines.connect.prometheus.server import PAUSES_S, Server, open_server
from pipelines.errors import BadUsage, ConnectError
from tests.pipelines.connect.prometheus.fake import answer, clock, server

OK = [({"gpu": "0", "Hostname": "n1"}, 0.5)]


def test_nan_and_infinity_arrive_as_numbers() -> None:
    made, _ = server(lambda _: answer([({}, "NaN"), ({}, "+Inf"), ({}, "9223372036854775794")]))
    values = made.vector("X", 0.0, ["gpu"])["value"].to_list()
    assert str(values) == "[nan, inf, 9.223372036854776e+18]"


def test_a_server_that_is_up_again_is_asked_again() -> None:
    answers = iter([httpx2.Response(503), httpx2.Response(429, headers={"Retry-After": "4"}), clock(7.0)])
    made, pauses = server(lambda _: next(answers))
    assert made.now() == 7.0
    assert pauses == [PAUSES_S[0], 4.0]


@pytest.mark.parametrize("status", [500, 502, 503, 504, 408, 429])
def test_a_server_that_stays_down_is_given_up_in_one_line(status: int) -> None:
    made, pauses = server(lambda _: httpx2.Response(status, headers={"Retry-After": "86400"}, text="a\nb"))
    with pytest.raises(ConnectError, match=f"4 attempts .*{status}") as failure:
        made.now()
    assert "\n" not in str(failure.value)
    assert pauses == [10.0, 10.0, 10.0]


@pytest.mark.parametrize("error", [httpx2.ReadTimeout, httpx2.ConnectError, httpx2.RemoteProtocolError])
def test_timeouts_and_broken_connections_are_tried_again(error: type[httpx2.TransportError]) -> None:
    def fail(_: httpx2.Request) -> httpx2.Response:
        raise error("secret-token in a proxy's text")

    made, pauses = server(fail)
    with pytest.raises(ConnectError, match=error.__name__) as failure:
        made.vector("X", 0.0, ["gpu"])
    assert "secret" not in str(failure.value)
    assert pauses == list(PAUSES_S)


@pytest.mark.parametrize(
    "content",
    [
        b"", b"<html>login</html>", b'{"status":"success"', b"[]", b"null", b'{"status":"success"}', b"\xff\xfe",
        b'{"status":"error","data":{"resultType":"vector","result":[]}}',
        b'{"status":"success","data":{"resultType":"matrix","result":[]}}',
        b'{"status":"success","data":{"resultType":"vector","result":{}}}',
        b'{"status":"success","data":{"resultType":"vector","result":[1]}}',
        b'{"status":"success","data":{"resultType":"vector","result":[{"metric":{},"value":[0,"one"]}]}}',
        b'{"status":"success","data":{"resultType":"vector","result":[{"metric":[],"value":[0,"1"]}]}}',
        b'{"status":"success","data":{"resultType":"vector","result":[{"metric":{"gpu":7},"value":[0,"1"]}]}}',
        b"[" * 100_000,
    ],
)  # fmt: skip
def test_an_answer_of_another_kind_is_refused(content: bytes) -> None:
    made, pauses = server(lambda _: httpx2.Response(200, content=content))
    with pytest.raises(ConnectError, match="not as Prometheus does"):
        made.vector("X", 0.0, ["gpu"])
    assert pauses == []


@pytest.mark.parametrize("values", [[[0]], [["now", "1"]], [1], [[0, None]]])
def test_samples_of_another_kind_are_refused(values: object) -> None:
    body = {"status": "success", "data": {"resultType": "matrix", "result": [{"metric": {}, "values": values}]}}
    made, _ = server(lambda _: httpx2.Response(200, json=body))
    with pytest.raises(ConnectError, match="not as Prometheus does"):
        made.samples("X[1h]", 0.0, ["gpu"])


def test_an_answer_is_bounded_in_bytes() -> None:
    made, _ = server(lambda _: answer(OK * 40_000), most_bytes=2**20)
    with pytest.raises(ConnectError, match="more than 1 MiB"):
        made.vector("X", 0.0, ["gpu"])


def test_an_answer_that_never_ends_is_given_up() -> None:
    made, _ = server(lambda _: answer(OK))
    slow = Server(client=made.client, address=made.address, answer_s=-1.0, sleep=lambda _: None)
    with pytest.raises(ConnectError, match="took more than"):
        slow.vector("X", 0.0, ["gpu"])


@pytest.mark.parametrize(
    ("status", "cure"),
    [(401, "TAUT_PROMETHEUS_TOKEN"), (403, "its token"), (404, "address"), (302, "address"), (400, "address")],
)
def test_a_refusal_names_what_to_change(status: int, cure: str) -> None:
    made, pauses = server(
        lambda _: httpx2.Response(status, json={"status": "error", "error": "bad\n\x1b[31m" + "x" * 999})
    )
    with pytest.raises(ConnectError, match=cure) as failure:
        made.now()
    assert pauses == []
    assert "\n" not in str(failure.value)
    assert "\x1b" not in str(failure.value)
    assert len(str(failure.value)) < 350


def test_incomplete_answers_are_counted_but_remarks_on_promql_are_not() -> None:
    answers = iter(
        [answer(OK, warnings=["PromQL info: metric might not be a counter"]), answer(OK, warnings=["store down"])]
    )
    made, _ = server(lambda _: next(answers))
    made.vector("X", 0.0, ["gpu"])
    assert made.partial == 0
    made.vector("X", 0.0, ["gpu"])
    assert made.partial == 1


def test_token_and_password_are_sent_but_not_shown() -> None:
    with open_server("http://me:pass@127.0.0.1:9/prom/?x=1", token="tok") as made:
        assert made.address == "http://127.0.0.1:9/prom"
        request = made.client.build_request("POST", "api/v1/query")
        assert request.headers["Authorization"] == "Bearer tok"
        assert request.url.path == "/prom/api/v1/query"


def test_a_token_that_no_header_can_hold_is_refused() -> None:
    with pytest.raises(BadUsage, match="visible ASCII"), open_server("http://prometheus:9090", token="a\nb"):
        pass


@pytest.mark.parametrize("url", ["prometheus:9090", "ftp://prom", "http://", "http://prom:port", ""])
def test_another_address_is_refused(url: str) -> None:
    with pytest.raises(BadUsage, match="the server's address"), open_server(url):
        pass


def test_certificates_that_cannot_be_read_are_refused(tmp_path: Path) -> None:
    (tmp_path / "ca.pem").write_text("no certificate")
    for name in ("ca.pem", "absent.pem"):
        with pytest.raises(BadUsage, match="--ca"), open_server("https://prom", ca=tmp_path / name):
            pass
