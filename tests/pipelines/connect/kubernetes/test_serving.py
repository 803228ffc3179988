"""The webhook's server: real processes over TLS, whose certificate changes while they run."""

import http.client
import json
import signal
import ssl
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from pipelines.connect.kubernetes.serving import Certificate
from pipelines.errors import BadUsage
from tests.modelserve.server.certificates import new_pair
from tests.modelserve.server.running import Running, start, stop, until
from tests.pipelines.connect.kubernetes.api_server import admitted, recorded

KUBE = [sys.executable, "-c", "from pipelines.cli import main; main()", "kube"]


@pytest.fixture
def launch_hook(tmp_path: Path) -> Iterator[Callable[..., Running]]:
    """Return a starter of `taut kube` servers on free ports, whose service is away."""
    config = tmp_path / "kubernetes.toml"
    config.write_text('trace = "pai"\nmode = "enforce"\n')
    running: list[Running] = []

    def launch(command: str, *options: str) -> Running:
        given = ["--config", str(config), "--url", "http://127.0.0.1:9", "--port", "0"]
        running.append(start([*KUBE, command, *given, *options], {"TERM": "dumb"}))
        one = running[-1]
        until(
            lambda: one.process.poll() is not None or any("listening" in line for line in one.errors), what="listening"
        )
        assert one.process.poll() is None, one.errors
        return one

    yield launch
    for one in running:
        stop(one)


def port_of(one: Running) -> int:
    [line] = [line for line in one.errors if line.startswith("listening on ")]
    return int(line.rsplit(":", 1)[1])


def certificate_of(port: int) -> str:
    return ssl.get_server_certificate(("127.0.0.1", port), timeout=10)


@pytest.fixture
def pair(tmp_path: Path) -> tuple[Path, Path]:
    """Return the paths of a certificate for 127.0.0.1 and its key."""
    certificate, key = tmp_path / "tls.crt", tmp_path / "tls.key"
    for path, text in zip((certificate, key), new_pair()[:2], strict=True):
        path.write_bytes(text)
    return certificate, key


@pytest.mark.slow
def test_a_review_is_answered_over_tls_and_a_new_certificate_is_used(
    launch_hook: Callable[..., Running], pair: tuple[Path, Path]
) -> None:
    certificate, key = pair
    server = launch_hook("webhook", "--tls-certificate", str(certificate), "--tls-key", str(key))
    port, review = port_of(server), recorded("pod-of-job")
    trust = ssl.create_default_context(cafile=str(certificate))
    connection = http.client.HTTPSConnection("127.0.0.1", port, timeout=10, context=trust)

    connection.request(
        "POST", "/kubernetes/mutate?timeout=1s", json.dumps(review), {"content-type": "application/json"}
    )
    response, _ = admitted(review, connection.getresponse().read())

    assert response["auditAnnotations"]["reason"].startswith("failed: ")  # the service is away
    text, secret, _ = new_pair()
    key.write_bytes(secret)
    certificate.write_bytes(text)
    until(lambda: certificate_of(port) == text.decode(), within_s=20, what="the new certificate")
    connection.request("POST", "/kubernetes/mutate", json.dumps(review))  # on the old connection
    assert connection.getresponse().status == 200
    connection.close()
    assert server.end(signal.SIGINT, within_s=30) == 0


def test_files_that_do_not_belong_together_leave_the_old_certificate(pair: tuple[Path, Path]) -> None:
    certificate, key = pair
    held, (text, secret, _) = Certificate(certificate, key), new_pair()

    assert held.refresh() is False
    key.write_bytes(secret)
    assert held.refresh() is False
    certificate.write_bytes(text)
    assert held.refresh() is True
    key.unlink()
    assert held.refresh() is False


def test_a_key_of_another_certificate_is_named_at_the_start(pair: tuple[Path, Path]) -> None:
    certificate, key = pair
    key.write_bytes(new_pair()[1])

    with pytest.raises(BadUsage, match="--tls-key"):
        Certificate(certificate, key)
