import socket
from pathlib import Path

import pytest

from pipelines.errors import FetchError
from pipelines.fetch.fetch import fetch
from tests.pipelines.fetch.mirror import BODY, NAME, Mirror, Pauses, fetched, files_in, manifest_of


@pytest.mark.parametrize("bound", [None, "max_bytes = 600_000"])
def test_a_wrong_checksum_is_refused_and_nothing_kept(
    mirror: Mirror, tmp_path: Path, out: Path, bound: str | None
) -> None:
    mirror.body = BODY[:-1] + b"?"

    with pytest.raises(FetchError, match=r"table.csv: found SHA-256 \w{12}\.\.\., expected \w{12}\.\.\.: .*deleted"):
        fetched(mirror, out, manifest_of(tmp_path, bound=bound))

    assert files_in(out) == []
    assert len(mirror.requests) == 1


@pytest.mark.parametrize("status", [401, 403, 404, 410])
def test_a_file_that_is_not_there_fails_at_once(mirror: Mirror, tmp_path: Path, out: Path, status: int) -> None:
    mirror.faults = [("status", (status, {}))]

    with pytest.raises(FetchError, match=f"answered {status}.*expected table.csv.*moved"):
        fetched(mirror, out, manifest_of(tmp_path))

    assert len(mirror.requests) == 1
    assert files_in(out) == []


@pytest.mark.parametrize("status", [408, 429, 500, 502, 503])
def test_a_passing_failure_is_tried_again(mirror: Mirror, tmp_path: Path, out: Path, status: int) -> None:
    mirror.faults = [("status", (status, {}))] * 2
    pauses = Pauses()

    fetched(mirror, out, manifest_of(tmp_path), pauses)

    assert pauses.taken == [1.0, 2.0]
    assert (out / NAME).read_bytes() == BODY


@pytest.mark.parametrize(("asked", "waited_s"), [("7", 7.0), ("100000", 60.0), ("soon", 1.0)])
def test_a_server_may_ask_for_a_longer_pause(
    mirror: Mirror, tmp_path: Path, out: Path, asked: str, waited_s: float
) -> None:
    mirror.faults = [("status", (503, {"Retry-After": asked}))]
    pauses = Pauses()

    fetched(mirror, out, manifest_of(tmp_path), pauses)

    assert pauses.taken == [waited_s]


def test_a_server_that_stays_silent_is_given_up(mirror: Mirror, tmp_path: Path, out: Path) -> None:
    mirror.faults = [("stall", 0)] * 3

    with pytest.raises(FetchError, match=r"gave up .* 3 attempts .*ReadTimeout"):
        fetched(mirror, out, manifest_of(tmp_path))

    assert files_in(out) == []


def test_a_server_that_is_away_is_given_up(mirror: Mirror, tmp_path: Path, out: Path) -> None:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        mirror.url = f"http://127.0.0.1:{free.getsockname()[1]}"
        pauses = Pauses()

        with pytest.raises(FetchError, match=r"gave up .*ConnectError"):
            fetched(mirror, out, manifest_of(tmp_path), pauses)

    assert pauses.taken == [1.0, 2.0]
    assert files_in(out) == []


@pytest.mark.parametrize(
    ("served", "bound"),
    [
        pytest.param(BODY + b"x", None, id="longer than stated"),
        pytest.param(BODY[:-1], None, id="shorter than stated"),
        pytest.param(BODY, "max_bytes = 1000", id="longer than the bound"),
    ],
)
def test_a_declared_length_that_cannot_be_is_refused_before_the_body(
    mirror: Mirror, tmp_path: Path, out: Path, served: bytes, bound: str | None
) -> None:
    mirror.body = served
    seen: list[int] = []

    with pytest.raises(FetchError, match=r"holds \d+ bytes, expected"):
        fetched(mirror, out, manifest_of(tmp_path, bound=bound), progress=lambda name, done, total: seen.append(done))

    assert seen == []
    assert files_in(out) == []


@pytest.mark.parametrize("bound", [None, "max_bytes = 600_000"])
def test_a_body_that_does_not_end_is_cut_off(mirror: Mirror, tmp_path: Path, out: Path, bound: str | None) -> None:
    mirror.faults = [("endless", None)]

    with pytest.raises(FetchError, match=r"sends more than the \d+ bytes expected"):
        fetched(mirror, out, manifest_of(tmp_path, bound=bound))

    assert files_in(out) == []


def test_a_page_answering_in_place_of_the_file_costs_nothing_held(mirror: Mirror, tmp_path: Path, out: Path) -> None:
    out.mkdir()
    (out / f"{NAME}.part").write_bytes(BODY[:1000])
    mirror.ranges, mirror.body = False, b"<html>please log in</html>"

    with pytest.raises(FetchError, match="a proxy answers instead"):
        fetched(mirror, out, manifest_of(tmp_path))

    assert (out / f"{NAME}.part").read_bytes() == BODY[:1000]


def test_bytes_encoded_on_the_way_are_refused(mirror: Mirror, tmp_path: Path, out: Path) -> None:
    mirror.faults = [("encoded", None)]

    with pytest.raises(FetchError, match="gzip-encoded"):
        fetched(mirror, out, manifest_of(tmp_path))

    assert files_in(out) == []


def test_a_redirect_is_followed_and_keeps_the_range(mirror: Mirror, tmp_path: Path, out: Path) -> None:
    elsewhere = f"{mirror.url}/elsewhere"
    mirror.faults = [("redirect", elsewhere), ("cut", 1000), ("redirect", elsewhere)]

    fetched(mirror, out, manifest_of(tmp_path))

    asked = [(request["path"], request["Range"]) for request in mirror.requests]
    first, second = f"/traces/{NAME}", "/traces/elsewhere"
    assert asked == [(first, None), (second, None), (first, "bytes=1000-"), (second, "bytes=1000-")]
    assert (out / NAME).read_bytes() == BODY


@pytest.mark.parametrize("target", ["http://example.org/t", "file:///etc/passwd", "ftp://127.0.0.1/t"])
def test_a_redirect_to_anything_but_https_is_refused(mirror: Mirror, tmp_path: Path, out: Path, target: str) -> None:
    mirror.faults = [("redirect", target)]

    with pytest.raises(FetchError, match=r"expected an https address|invalid address"):
        fetched(mirror, out, manifest_of(tmp_path))

    assert files_in(out) == []


def test_redirects_that_never_end_are_refused(mirror: Mirror, tmp_path: Path, out: Path) -> None:
    mirror.faults = [("redirect", f"{mirror.url}/again")] * 20

    with pytest.raises(FetchError, match="redirects more than 5 times"):
        fetched(mirror, out, manifest_of(tmp_path))

    assert len(mirror.requests) == 6


@pytest.mark.parametrize(
    "base_url", ["http://example.org", "file:///srv", "ftp://example.org", "example.org", "http://["]
)
def test_a_mirror_is_https_or_on_this_machine(tmp_path: Path, out: Path, base_url: str) -> None:
    with pytest.raises(FetchError, match=r"https|not an address"):
        fetch("trace", out, manifest=manifest_of(tmp_path), base_url=base_url)

    assert files_in(out) == []
