import hashlib
import io
import os
import socket
import tarfile
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from pipelines.download import Patience
from pipelines.errors import BadUsage, FetchError
from pipelines.fetch import FetchReport, fetch

NAME = "table.csv"
BODY = bytes(range(256)) * 2000
QUICK = Patience(connect_timeout_s=2.0, read_timeout_s=0.2, attempts=3)


@dataclass
class Mirror:
    """A server on this machine that misbehaves as told: one fault per request, in order, then none."""

    url: str = ""
    body: bytes = BODY
    etag: str | None = '"v1"'
    ranges: bool = True
    honours_if_range: bool = True
    faults: list[tuple[str, object]] = field(default_factory=list)
    requests: list[dict[str, str | None]] = field(default_factory=list)
    released: threading.Event = field(default_factory=threading.Event)


def _handler(mirror: Mirror) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        def log_message(self, *args: object) -> None:
            pass

        def do_GET(self) -> None:
            wanted = {name: self.headers.get(name) for name in ("Range", "If-Range", "Accept-Encoding")}
            mirror.requests.append({"path": self.path, **wanted})
            fault, how = mirror.faults.pop(0) if mirror.faults else ("none", None)
            if fault == "status":
                status, headers = how
                self._head(status, {"Content-Length": "0", **headers})
            elif fault == "redirect":
                self._head(302, {"Location": str(how), "Content-Length": "0"})
            else:
                self._send(fault, how)

        def _send(self, fault: str, how: object) -> None:
            start = self._start()
            if start is not None and start >= len(mirror.body):
                self._head(416, {"Content-Range": f"bytes */{len(mirror.body)}", "Content-Length": "0"})
                return
            rest = mirror.body[start or 0 :]
            headers = {"Content-Length": str(len(rest))}
            if mirror.etag:
                headers["ETag"] = mirror.etag
            if start is not None:
                shown = start + 1 if fault == "shifted" else start
                headers["Content-Range"] = f"bytes {shown}-{len(mirror.body) - 1}/{len(mirror.body)}"
            if fault == "encoded":
                headers["Content-Encoding"] = "gzip"
            if fault in ("unsized", "endless"):
                del headers["Content-Length"]
            self._head(200 if start is None else 206, headers)
            if fault == "endless":
                rest = rest * 4
            if fault in ("cut", "stall", "unsized"):
                rest = rest[: int(str(how))]
            self.wfile.write(rest)
            if fault == "stall":
                mirror.released.wait(10)

        def _start(self) -> int | None:
            wanted, only_if = self.headers.get("Range"), self.headers.get("If-Range")
            if wanted is None or not mirror.ranges:
                return None
            if only_if is not None and only_if != mirror.etag and mirror.honours_if_range:
                return None
            return int(wanted.removeprefix("bytes=").removesuffix("-"))

        def _head(self, status: int, headers: dict[str, str]) -> None:
            self.send_response(status)
            for name, value in headers.items():
                self.send_header(name, value)
            self.end_headers()

    return Handler


class _QuietServer(ThreadingHTTPServer):
    def handle_error(self, *args: object) -> None:
        """Clients that hang up are part of these tests."""


@pytest.fixture
def mirror(monkeypatch: pytest.MonkeyPatch) -> Iterator[Mirror]:
    monkeypatch.setenv("NO_PROXY", "*")
    site = Mirror()
    with _QuietServer(("127.0.0.1", 0), _handler(site)) as server:
        site.url = f"http://127.0.0.1:{server.server_port}/traces"
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        yield site
        site.released.set()
        server.shutdown()
        thread.join()


@pytest.fixture
def out(tmp_path: Path) -> Path:
    return tmp_path / "out"


def _manifest(
    tmp_path: Path, *, body: bytes = BODY, bound: str | None = None, name: str = NAME, more: str = ""
) -> Path:
    path = tmp_path / "trace.toml"
    path.write_text(
        f"""
name = "trace"
title = "A trace"
publisher = "Nobody"
licence = "CC0"
homepage = "https://example.org/"
citation = "None"

[[files]]
name = "{name}"
url = "https://example.org/{name}"
sha256 = "{hashlib.sha256(body).hexdigest()}"
{bound or f"size_bytes = {len(body)}"}
{more}
"""
    )
    return path


@dataclass
class Pauses:
    """Stands in for `time.sleep`: notes the pauses and lets something happen in them."""

    taken: list[float] = field(default_factory=list)
    meanwhile: Callable[[], None] = lambda: None

    def __call__(self, pause_s: float) -> None:
        self.taken.append(pause_s)
        self.meanwhile()


def _fetch(mirror: Mirror, out: Path, manifest: Path, pauses: Pauses | None = None, **more: object) -> FetchReport:
    return fetch(
        "trace",
        out,
        manifest=manifest,
        base_url=mirror.url,
        patience=QUICK,
        sleep=pauses or Pauses(),
        **more,
    )


def _files(folder: Path) -> list[str]:
    return sorted(str(path.relative_to(folder)) for path in folder.rglob("*"))


def test_a_file_is_fetched_verified_and_named(mirror: Mirror, tmp_path: Path, out: Path) -> None:
    report = _fetch(mirror, out, _manifest(tmp_path))

    assert (out / NAME).read_bytes() == BODY
    assert _files(out) == [NAME]
    assert report.rows() == [{"file": NAME, "size_bytes": len(BODY), "state": "fetched", "unpacked": 0}]
    assert report.licence == "CC0"
    assert mirror.requests[0]["path"] == f"/traces/{NAME}"
    assert mirror.requests[0]["Accept-Encoding"] == "identity"


def test_a_second_run_downloads_nothing(mirror: Mirror, tmp_path: Path, out: Path) -> None:
    _fetch(mirror, out, _manifest(tmp_path))
    written_ns = (out / NAME).stat().st_mtime_ns

    report = _fetch(mirror, out, _manifest(tmp_path))

    assert [file.state for file in report.files] == ["present"]
    assert len(mirror.requests) == 1
    assert (out / NAME).stat().st_mtime_ns == written_ns


def test_a_file_with_other_content_is_replaced(mirror: Mirror, tmp_path: Path, out: Path) -> None:
    out.mkdir()
    (out / NAME).write_bytes(BODY[:-1])

    report = _fetch(mirror, out, _manifest(tmp_path))

    assert [file.state for file in report.files] == ["replaced"]
    assert (out / NAME).read_bytes() == BODY


def test_a_file_with_other_content_stays_when_its_replacement_fails(mirror: Mirror, tmp_path: Path, out: Path) -> None:
    out.mkdir()
    (out / NAME).write_bytes(b"older")
    mirror.faults = [("status", (404, {}))]

    with pytest.raises(FetchError):
        _fetch(mirror, out, _manifest(tmp_path))

    assert _files(out) == [NAME]
    assert (out / NAME).read_bytes() == b"older"


@pytest.mark.parametrize("fault", ["cut", "stall"])
def test_a_broken_transfer_goes_on_where_it_stopped(mirror: Mirror, tmp_path: Path, out: Path, fault: str) -> None:
    mirror.faults = [(fault, 100_000), (fault, 50_000)]
    pauses = Pauses()

    _fetch(mirror, out, _manifest(tmp_path), pauses)

    assert [request["Range"] for request in mirror.requests] == [None, "bytes=100000-", "bytes=150000-"]
    assert [request["If-Range"] for request in mirror.requests] == [None, '"v1"', '"v1"']
    assert (out / NAME).read_bytes() == BODY
    assert _files(out) == [NAME]
    assert pauses.taken == [1.0, 1.0], "an attempt that gained bytes starts the count anew"


def test_a_later_run_resumes_what_an_earlier_one_left(mirror: Mirror, tmp_path: Path, out: Path) -> None:
    mirror.faults = [("cut", 1000)] + [("status", (503, {}))] * 2

    with pytest.raises(FetchError, match=r"gave up .* 3 attempts .*503.* go on from byte 1000"):
        _fetch(mirror, out, _manifest(tmp_path))

    assert _files(out) == [f"{NAME}.part", f"{NAME}.part.etag"]
    assert (out / f"{NAME}.part").read_bytes() == BODY[:1000]
    report = _fetch(mirror, out, _manifest(tmp_path))
    assert mirror.requests[-1]["Range"] == "bytes=1000-"
    assert [file.state for file in report.files] == ["resumed"]
    assert (out / NAME).read_bytes() == BODY
    assert _files(out) == [NAME]


@pytest.mark.parametrize("bound", [None, "max_bytes = 600_000"])
def test_a_part_that_is_complete_is_verified_and_named(
    mirror: Mirror, tmp_path: Path, out: Path, bound: str | None
) -> None:
    out.mkdir()
    (out / f"{NAME}.part").write_bytes(BODY)

    _fetch(mirror, out, _manifest(tmp_path, bound=bound))

    assert _files(out) == [NAME]
    # Where the size is known nothing needs asking; where it is not, the server's 416 tells.
    assert len(mirror.requests) == (0 if bound is None else 1)


def test_a_part_longer_than_the_file_is_started_over(mirror: Mirror, tmp_path: Path, out: Path) -> None:
    out.mkdir()
    (out / f"{NAME}.part").write_bytes(BODY + b"x")

    _fetch(mirror, out, _manifest(tmp_path, bound="max_bytes = 600_000"))

    assert [request["Range"] for request in mirror.requests] == [f"bytes={len(BODY) + 1}-", None]
    assert (out / NAME).read_bytes() == BODY


def test_a_server_without_ranges_is_read_from_the_start(mirror: Mirror, tmp_path: Path, out: Path) -> None:
    mirror.ranges = False
    mirror.faults = [("cut", 100_000)]

    report = _fetch(mirror, out, _manifest(tmp_path))

    assert mirror.requests[1]["Range"] == "bytes=100000-"
    assert (out / NAME).read_bytes() == BODY
    assert [file.state for file in report.files] == ["fetched"]


def test_a_server_without_ranges_that_keeps_breaking_is_given_up(mirror: Mirror, tmp_path: Path, out: Path) -> None:
    mirror.ranges = False
    mirror.faults = [("cut", 100_000)] * 10

    with pytest.raises(FetchError, match="gave up"):
        _fetch(mirror, out, _manifest(tmp_path))

    assert len(mirror.requests) == 3


@pytest.mark.parametrize("honours_if_range", [True, False])
def test_a_file_that_changed_in_between_is_started_over(
    mirror: Mirror, tmp_path: Path, out: Path, honours_if_range: bool
) -> None:
    def change() -> None:
        mirror.body, mirror.etag = BODY, '"v2"'

    mirror.body, mirror.etag, mirror.honours_if_range = BODY[::-1], '"v1"', honours_if_range
    mirror.faults = [("cut", 100_000)]

    _fetch(mirror, out, _manifest(tmp_path), Pauses(meanwhile=change))

    assert mirror.requests[1]["If-Range"] == '"v1"'
    assert (out / NAME).read_bytes() == BODY
    assert _files(out) == [NAME]


@pytest.mark.parametrize("etag", [None, 'W/"v1"'])
def test_without_a_strong_etag_the_checksum_vouches_for_the_pieces(
    mirror: Mirror, tmp_path: Path, out: Path, etag: str | None
) -> None:
    mirror.etag = etag
    mirror.faults = [("cut", 100_000)]

    _fetch(mirror, out, _manifest(tmp_path))

    assert [request["If-Range"] for request in mirror.requests] == [None, None]
    assert mirror.requests[1]["Range"] == "bytes=100000-"
    assert (out / NAME).read_bytes() == BODY


def test_a_piece_other_than_the_one_asked_for_is_not_appended(mirror: Mirror, tmp_path: Path, out: Path) -> None:
    mirror.faults = [("cut", 100_000), ("shifted", None)]

    _fetch(mirror, out, _manifest(tmp_path))

    assert [request["Range"] for request in mirror.requests] == [None, "bytes=100000-", None]
    assert (out / NAME).read_bytes() == BODY


@pytest.mark.parametrize("bound", [None, "max_bytes = 600_000"])
def test_a_wrong_checksum_is_refused_and_nothing_kept(
    mirror: Mirror, tmp_path: Path, out: Path, bound: str | None
) -> None:
    mirror.body = BODY[:-1] + b"?"

    with pytest.raises(FetchError, match=r"table.csv: found SHA-256 \w{12}\.\.\., expected \w{12}\.\.\.: .*deleted"):
        _fetch(mirror, out, _manifest(tmp_path, bound=bound))

    assert _files(out) == []
    assert len(mirror.requests) == 1


def test_a_body_cut_short_without_a_declared_length_is_resumed(mirror: Mirror, tmp_path: Path, out: Path) -> None:
    mirror.faults = [("unsized", 100_000)]

    _fetch(mirror, out, _manifest(tmp_path))

    assert mirror.requests[1]["Range"] == "bytes=100000-"
    assert (out / NAME).read_bytes() == BODY


@pytest.mark.parametrize("status", [401, 403, 404, 410])
def test_a_file_that_is_not_there_fails_at_once(mirror: Mirror, tmp_path: Path, out: Path, status: int) -> None:
    mirror.faults = [("status", (status, {}))]

    with pytest.raises(FetchError, match=f"answered {status}.*expected table.csv.*moved"):
        _fetch(mirror, out, _manifest(tmp_path))

    assert len(mirror.requests) == 1
    assert _files(out) == []


def test_a_refusal_keeps_what_an_earlier_run_left(mirror: Mirror, tmp_path: Path, out: Path) -> None:
    out.mkdir()
    (out / f"{NAME}.part").write_bytes(BODY[:1000])
    mirror.faults = [("status", (403, {}))]

    with pytest.raises(FetchError, match="403"):
        _fetch(mirror, out, _manifest(tmp_path))

    assert (out / f"{NAME}.part").read_bytes() == BODY[:1000]


@pytest.mark.parametrize("status", [408, 429, 500, 502, 503])
def test_a_passing_failure_is_tried_again(mirror: Mirror, tmp_path: Path, out: Path, status: int) -> None:
    mirror.faults = [("status", (status, {}))] * 2
    pauses = Pauses()

    _fetch(mirror, out, _manifest(tmp_path), pauses)

    assert pauses.taken == [1.0, 2.0]
    assert (out / NAME).read_bytes() == BODY


@pytest.mark.parametrize(("asked", "waited_s"), [("7", 7.0), ("100000", 60.0), ("soon", 1.0)])
def test_a_server_may_ask_for_a_longer_pause(
    mirror: Mirror, tmp_path: Path, out: Path, asked: str, waited_s: float
) -> None:
    mirror.faults = [("status", (503, {"Retry-After": asked}))]
    pauses = Pauses()

    _fetch(mirror, out, _manifest(tmp_path), pauses)

    assert pauses.taken == [waited_s]


def test_a_server_that_stays_silent_is_given_up(mirror: Mirror, tmp_path: Path, out: Path) -> None:
    mirror.faults = [("stall", 0)] * 3

    with pytest.raises(FetchError, match=r"gave up .* 3 attempts .*ReadTimeout"):
        _fetch(mirror, out, _manifest(tmp_path))

    assert _files(out) == []


def test_a_server_that_is_away_is_given_up(mirror: Mirror, tmp_path: Path, out: Path) -> None:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        mirror.url = f"http://127.0.0.1:{free.getsockname()[1]}"
        pauses = Pauses()

        with pytest.raises(FetchError, match=r"gave up .*ConnectError"):
            _fetch(mirror, out, _manifest(tmp_path), pauses)

    assert pauses.taken == [1.0, 2.0]
    assert _files(out) == []


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
        _fetch(mirror, out, _manifest(tmp_path, bound=bound), progress=lambda name, done, total: seen.append(done))

    assert seen == []
    assert _files(out) == []


@pytest.mark.parametrize("bound", [None, "max_bytes = 600_000"])
def test_a_body_that_does_not_end_is_cut_off(mirror: Mirror, tmp_path: Path, out: Path, bound: str | None) -> None:
    mirror.faults = [("endless", None)]

    with pytest.raises(FetchError, match=r"sends more than the \d+ bytes expected"):
        _fetch(mirror, out, _manifest(tmp_path, bound=bound))

    assert _files(out) == []


def test_a_page_answering_in_place_of_the_file_costs_nothing_held(mirror: Mirror, tmp_path: Path, out: Path) -> None:
    out.mkdir()
    (out / f"{NAME}.part").write_bytes(BODY[:1000])
    mirror.ranges, mirror.body = False, b"<html>please log in</html>"

    with pytest.raises(FetchError, match="something on the way answers in its place"):
        _fetch(mirror, out, _manifest(tmp_path))

    assert (out / f"{NAME}.part").read_bytes() == BODY[:1000]


def test_bytes_encoded_on_the_way_are_refused(mirror: Mirror, tmp_path: Path, out: Path) -> None:
    mirror.faults = [("encoded", None)]

    with pytest.raises(FetchError, match="gzip-encoded"):
        _fetch(mirror, out, _manifest(tmp_path))

    assert _files(out) == []


def test_a_redirect_is_followed_and_keeps_the_range(mirror: Mirror, tmp_path: Path, out: Path) -> None:
    elsewhere = f"{mirror.url}/elsewhere"
    mirror.faults = [("redirect", elsewhere), ("cut", 1000), ("redirect", elsewhere)]

    _fetch(mirror, out, _manifest(tmp_path))

    asked = [(request["path"], request["Range"]) for request in mirror.requests]
    first, second = f"/traces/{NAME}", "/traces/elsewhere"
    assert asked == [(first, None), (second, None), (first, "bytes=1000-"), (second, "bytes=1000-")]
    assert (out / NAME).read_bytes() == BODY


@pytest.mark.parametrize("target", ["http://example.org/t", "file:///etc/passwd", "ftp://127.0.0.1/t"])
def test_a_redirect_to_anything_but_https_is_refused(mirror: Mirror, tmp_path: Path, out: Path, target: str) -> None:
    mirror.faults = [("redirect", target)]

    with pytest.raises(FetchError, match=r"expected an https address|no address"):
        _fetch(mirror, out, _manifest(tmp_path))

    assert _files(out) == []


def test_redirects_that_never_end_are_refused(mirror: Mirror, tmp_path: Path, out: Path) -> None:
    mirror.faults = [("redirect", f"{mirror.url}/again")] * 20

    with pytest.raises(FetchError, match="redirects more than 5 times"):
        _fetch(mirror, out, _manifest(tmp_path))

    assert len(mirror.requests) == 6


@pytest.mark.parametrize(
    "base_url", ["http://example.org", "file:///srv", "ftp://example.org", "example.org", "http://["]
)
def test_a_mirror_is_https_or_on_this_machine(tmp_path: Path, out: Path, base_url: str) -> None:
    with pytest.raises(FetchError, match=r"https|not an address"):
        fetch("trace", out, manifest=_manifest(tmp_path), base_url=base_url)

    assert _files(out) == []


def test_progress_grows_to_the_size_of_the_file(mirror: Mirror, tmp_path: Path, out: Path) -> None:
    calls: list[tuple[str, int, int | None]] = []
    mirror.faults = [("cut", 100_000)]

    _fetch(mirror, out, _manifest(tmp_path), progress=lambda *call: calls.append(call))

    held = [done for _, done, _ in calls]
    assert held == sorted(held)
    assert 100_000 in held
    assert calls[-1] == (NAME, len(BODY), len(BODY))
    assert {(name, total) for name, _, total in calls} == {(NAME, len(BODY))}


def test_two_runs_do_not_write_one_file(mirror: Mirror, tmp_path: Path, out: Path) -> None:
    refusals: list[str] = []

    def fetch_too() -> None:
        with pytest.raises(FetchError) as refused:
            _fetch(mirror, out, _manifest(tmp_path))
        refusals.append(str(refused.value))

    mirror.faults = [("cut", 1000)]

    _fetch(mirror, out, _manifest(tmp_path), Pauses(meanwhile=fetch_too))

    assert len(refusals) == 1
    assert "another taut is fetching" in refusals[0]
    assert (out / NAME).read_bytes() == BODY
    assert _files(out) == [NAME]


def test_an_interrupt_keeps_the_part_and_nothing_under_the_name(mirror: Mirror, tmp_path: Path, out: Path) -> None:
    def interrupt(name: str, done: int, total: int | None) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        _fetch(mirror, out, _manifest(tmp_path), progress=interrupt)

    assert _files(out) == [f"{NAME}.part", f"{NAME}.part.etag"]
    assert BODY.startswith((out / f"{NAME}.part").read_bytes())


def test_a_file_in_the_way_of_the_folder_is_named(mirror: Mirror, tmp_path: Path, out: Path) -> None:
    out.write_text("in the way")

    with pytest.raises(FetchError, match="cannot be a folder"):
        _fetch(mirror, out, _manifest(tmp_path))


def test_an_unknown_trace_names_the_known_ones(out: Path) -> None:
    with pytest.raises(BadUsage, match=r"'nosuch'.*helios, openb, pai, philly"):
        fetch("nosuch", out)

    assert not out.exists()


UNPACK = """
[files.unpack]
into = "data"
max_bytes = 1_000

[[files.unpack.members]]
path = "Venus/cluster_log.csv"
size_bytes = 5
"""


def _tar(members: dict[str, bytes]) -> bytes:
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w:gz") as tar:
        for name, body in members.items():
            info = tarfile.TarInfo(name)
            info.size = len(body)
            tar.addfile(info, io.BytesIO(body))
    return buffer.getvalue()


def test_an_archive_is_unpacked_once_and_again_when_a_member_is_gone(mirror: Mirror, tmp_path: Path, out: Path) -> None:
    mirror.body = _tar({"wrapper/Venus/cluster_log.csv": b"hello", "wrapper/readme": b"x"})
    manifest = _manifest(tmp_path, body=mirror.body, name="data.tar.gz", more=UNPACK)
    member = out / "data" / "Venus" / "cluster_log.csv"

    first = _fetch(mirror, out, manifest)
    written = member.stat()
    second = _fetch(mirror, out, manifest)

    assert first.files[0].unpacked == second.files[0].unpacked == (member,)
    assert member.read_bytes() == b"hello"
    assert os.path.samestat(member.stat(), written), "what is there as declared is left alone"
    member.unlink()
    _fetch(mirror, out, manifest)
    assert member.read_bytes() == b"hello"
    assert _files(out) == ["data", "data.tar.gz", "data/Venus", "data/Venus/cluster_log.csv"]
    assert len(mirror.requests) == 1


def test_an_archive_with_a_member_outside_the_target_leaves_only_itself(
    mirror: Mirror, tmp_path: Path, out: Path
) -> None:
    mirror.body = _tar({"Venus/cluster_log.csv": b"hello", "../../evil": b"x"})

    with pytest.raises(FetchError, match="outside the target"):
        _fetch(mirror, out, _manifest(tmp_path, body=mirror.body, name="data.tar.gz", more=UNPACK))

    assert _files(out) == ["data.tar.gz"]
    assert _files(tmp_path) == ["out", "out/data.tar.gz", "trace.toml"]
