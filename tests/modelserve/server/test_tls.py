"""TLS by settings, with a certificate made here; what cannot be used is named before anything listens."""

import socket
import ssl
import urllib.request
from collections.abc import Callable
from pathlib import Path

import pytest

from modelserve.errors import BadSettings
from modelserve.server.environment import check_certificate
from modelserve.settings import ServeSettings
from tests.modelserve.server.certificates import new_pair
from tests.modelserve.server.running import Running

Start = Callable[..., Running]
PASSWORD = "open sesame"


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """Write a certificate for 127.0.0.1, its key plain and under a password, and another's key."""
    folder = tmp_path_factory.mktemp("tls")
    texts = dict(zip(("certificate", "key", "locked"), new_pair(PASSWORD), strict=True)) | {"other": new_pair()[1]}
    for each, text in texts.items():
        (folder / each).write_bytes(text)
    return {each: folder / each for each in texts}


@pytest.mark.parametrize(("key", "password"), [("key", None), ("locked", PASSWORD)])
def test_calls_are_answered_over_tls(launch: Start, files: dict[str, Path], key: str, password: str | None) -> None:
    secret = {"tls_key_password": password} if password else {}
    server = launch(tls_certificate=files["certificate"], tls_key=files[key], **secret)
    trust = ssl.create_default_context(cafile=str(files["certificate"]))

    with urllib.request.urlopen(server.url + "/pid", timeout=10, context=trust) as answer:
        status = answer.status

    assert server.url.startswith("https://")
    assert status == 200
    assert PASSWORD not in "".join([*server.said, *server.errors])


def test_plain_calls_are_not_answered_and_an_old_protocol_is_refused(launch: Start, files: dict[str, Path]) -> None:
    server = launch(tls_certificate=files["certificate"], tls_key=files["key"])
    with socket.create_connection(("127.0.0.1", server.port), timeout=10) as client:
        client.sendall(b"GET /pid HTTP/1.1\r\nhost: here\r\n\r\n")
        try:
            plain = client.recv(100)
        except ConnectionResetError:
            plain = b""
    trust = ssl.create_default_context(cafile=str(files["certificate"]))
    with pytest.warns(DeprecationWarning, match="TLSv1_1"):
        trust.maximum_version = ssl.TLSVersion.TLSv1_1

    assert b"HTTP" not in plain
    with socket.create_connection(("127.0.0.1", server.port), timeout=10) as client, pytest.raises(ssl.SSLError):
        trust.wrap_socket(client, server_hostname="127.0.0.1")


@pytest.mark.parametrize(
    ("key", "password", "named"),
    [
        ("other", None, "TAUT_SERVE_TLS_KEY"),
        ("locked", None, "TAUT_SERVE_TLS_KEY_PASSWORD"),
        ("locked", "wrong", "TAUT_SERVE_TLS_KEY_PASSWORD"),
        ("certificate", None, "TAUT_SERVE_TLS_KEY"),
        ("absent", None, "TAUT_SERVE_TLS_KEY"),
    ],
)
def test_a_key_that_cannot_be_used_is_named(
    files: dict[str, Path], tmp_path: Path, key: str, password: str | None, named: str
) -> None:
    settings = ServeSettings(
        tls_certificate=files["certificate"], tls_key=files.get(key, tmp_path / key), tls_key_password=password
    )

    with pytest.raises(BadSettings, match=named) as found:
        check_certificate(settings)

    assert "wrong" not in str(found.value)
