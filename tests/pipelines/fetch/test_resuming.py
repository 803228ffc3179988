from pathlib import Path

import pytest

from pipelines.errors import FetchError
from tests.pipelines.fetch.mirror import BODY, NAME, Mirror, Pauses, fetched, files_in, manifest_of


@pytest.mark.parametrize("fault", ["cut", "stall"])
def test_a_broken_transfer_goes_on_where_it_stopped(mirror: Mirror, tmp_path: Path, out: Path, fault: str) -> None:
    mirror.faults = [(fault, 100_000), (fault, 50_000)]
    pauses = Pauses()

    fetched(mirror, out, manifest_of(tmp_path), pauses)

    assert [request["Range"] for request in mirror.requests] == [None, "bytes=100000-", "bytes=150000-"]
    assert (out / NAME).read_bytes() == BODY
    assert files_in(out) == [NAME]
    assert pauses.taken == [1.0, 1.0], "an attempt that gained bytes starts the count anew"


def test_a_later_run_resumes_what_an_earlier_one_left(mirror: Mirror, tmp_path: Path, out: Path) -> None:
    mirror.faults = [("cut", 1000)] + [("status", (503, {}))] * 2

    with pytest.raises(FetchError, match=r"gave up .* 3 attempts .*503.* resume from byte 1000"):
        fetched(mirror, out, manifest_of(tmp_path))

    assert files_in(out) == [f"{NAME}.part"]
    assert (out / f"{NAME}.part").read_bytes() == BODY[:1000]
    files = fetched(mirror, out, manifest_of(tmp_path))
    assert mirror.requests[-1]["Range"] == "bytes=1000-"
    assert [file.state for file in files] == ["resumed"]
    assert (out / NAME).read_bytes() == BODY
    assert files_in(out) == [NAME]


@pytest.mark.parametrize("bound", [None, "max_bytes = 600_000"])
def test_a_part_that_is_complete_is_verified_and_named(
    mirror: Mirror, tmp_path: Path, out: Path, bound: str | None
) -> None:
    out.mkdir()
    (out / f"{NAME}.part").write_bytes(BODY)

    fetched(mirror, out, manifest_of(tmp_path, bound=bound))

    assert files_in(out) == [NAME]
    # Where the size is known nothing needs asking; where it is not, the server's 416 tells.
    assert len(mirror.requests) == (0 if bound is None else 1)


def test_a_part_longer_than_the_file_is_started_over(mirror: Mirror, tmp_path: Path, out: Path) -> None:
    out.mkdir()
    (out / f"{NAME}.part").write_bytes(BODY + b"x")

    fetched(mirror, out, manifest_of(tmp_path, bound="max_bytes = 600_000"))

    assert [request["Range"] for request in mirror.requests] == [f"bytes={len(BODY) + 1}-", None]
    assert (out / NAME).read_bytes() == BODY


def test_a_server_without_ranges_is_read_from_the_start(mirror: Mirror, tmp_path: Path, out: Path) -> None:
    mirror.ranges = False
    mirror.faults = [("cut", 100_000)]

    files = fetched(mirror, out, manifest_of(tmp_path))

    assert mirror.requests[1]["Range"] == "bytes=100000-"
    assert (out / NAME).read_bytes() == BODY
    assert [file.state for file in files] == ["fetched"]


def test_a_file_that_changed_in_between_is_refused_and_then_fetched_anew(
    mirror: Mirror, tmp_path: Path, out: Path
) -> None:
    def change() -> None:
        mirror.body = BODY

    mirror.body, mirror.faults = BODY[::-1], [("cut", 100_000)]
    with pytest.raises(FetchError, match="found SHA-256"):
        fetched(mirror, out, manifest_of(tmp_path), Pauses(meanwhile=change))
    assert files_in(out) == []

    fetched(mirror, out, manifest_of(tmp_path))

    assert (out / NAME).read_bytes() == BODY


def test_a_piece_other_than_the_one_asked_for_is_not_appended(mirror: Mirror, tmp_path: Path, out: Path) -> None:
    mirror.faults = [("cut", 100_000), ("shifted", None)]

    fetched(mirror, out, manifest_of(tmp_path))

    assert [request["Range"] for request in mirror.requests] == [None, "bytes=100000-", None]
    assert (out / NAME).read_bytes() == BODY
