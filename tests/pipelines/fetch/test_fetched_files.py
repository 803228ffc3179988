import io
import os
import tarfile
from pathlib import Path

import pytest

from pipelines.errors import BadUsage, FetchError
from pipelines.fetch.fetch import fetch
from tests.pipelines.fetch.mirror import BODY, NAME, Mirror, Pauses, fetched, files_in, manifest_of


def test_a_file_is_fetched_verified_and_named(mirror: Mirror, tmp_path: Path, out: Path) -> None:
    files = fetched(mirror, out, manifest_of(tmp_path))

    assert (out / NAME).read_bytes() == BODY
    assert files_in(out) == [NAME]
    assert [file.row() for file in files] == [
        {"file": NAME, "size_bytes": len(BODY), "checked": "sha256", "state": "fetched", "unpacked": 0}
    ]
    assert mirror.requests[0]["path"] == f"/traces/{NAME}"
    assert mirror.requests[0]["Accept-Encoding"] == "identity"


def test_a_second_run_downloads_nothing(mirror: Mirror, tmp_path: Path, out: Path) -> None:
    fetched(mirror, out, manifest_of(tmp_path))
    written_ns = (out / NAME).stat().st_mtime_ns

    files = fetched(mirror, out, manifest_of(tmp_path))

    assert [file.state for file in files] == ["present"]
    assert len(mirror.requests) == 1
    assert (out / NAME).stat().st_mtime_ns == written_ns


def test_a_file_with_other_content_is_replaced(mirror: Mirror, tmp_path: Path, out: Path) -> None:
    out.mkdir()
    (out / NAME).write_bytes(BODY[:-1])

    files = fetched(mirror, out, manifest_of(tmp_path))

    assert [file.state for file in files] == ["replaced"]
    assert (out / NAME).read_bytes() == BODY


def test_a_file_with_other_content_stays_when_its_replacement_fails(mirror: Mirror, tmp_path: Path, out: Path) -> None:
    out.mkdir()
    (out / NAME).write_bytes(b"older")
    mirror.faults = [("status", (404, {}))]

    with pytest.raises(FetchError):
        fetched(mirror, out, manifest_of(tmp_path))

    assert files_in(out) == [NAME]
    assert (out / NAME).read_bytes() == b"older"


def test_progress_grows_to_the_size_of_the_file(mirror: Mirror, tmp_path: Path, out: Path) -> None:
    calls: list[tuple[str, int, int | None]] = []
    mirror.faults = [("cut", 100_000)]

    fetched(mirror, out, manifest_of(tmp_path), progress=lambda *call: calls.append(call))

    held = [done for _, done, _ in calls]
    assert held == sorted(held)
    assert 100_000 in held
    assert calls[-1] == (NAME, len(BODY), len(BODY))
    assert {(name, total) for name, _, total in calls} == {(NAME, len(BODY))}


def test_two_runs_do_not_write_one_file(mirror: Mirror, tmp_path: Path, out: Path) -> None:
    refusals: list[str] = []

    def fetch_too() -> None:
        with pytest.raises(FetchError) as refused:
            fetched(mirror, out, manifest_of(tmp_path))
        refusals.append(str(refused.value))

    mirror.faults = [("cut", 1000)]

    fetched(mirror, out, manifest_of(tmp_path), Pauses(meanwhile=fetch_too))

    assert len(refusals) == 1
    assert "another taut is fetching" in refusals[0]
    assert (out / NAME).read_bytes() == BODY
    assert files_in(out) == [NAME]


def test_an_interrupt_keeps_the_part_and_nothing_under_the_name(mirror: Mirror, tmp_path: Path, out: Path) -> None:
    def interrupt(name: str, done: int, total: int | None) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        fetched(mirror, out, manifest_of(tmp_path), progress=interrupt)

    assert files_in(out) == [f"{NAME}.part"]
    assert BODY.startswith((out / f"{NAME}.part").read_bytes())


def test_a_file_in_the_way_of_the_folder_is_named(mirror: Mirror, tmp_path: Path, out: Path) -> None:
    out.write_text("in the way")

    with pytest.raises(FetchError, match="cannot be a folder"):
        fetched(mirror, out, manifest_of(tmp_path))


def test_an_unknown_trace_names_the_known_ones(out: Path) -> None:
    with pytest.raises(BadUsage, match=r"'nosuch'.*energy, helios, openb, pai, pai-sample, philly"):
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
    manifest = manifest_of(tmp_path, body=mirror.body, name="data.tar.gz", more=UNPACK)
    member = out / "data" / "Venus" / "cluster_log.csv"

    first = fetched(mirror, out, manifest)
    written = member.stat()
    second = fetched(mirror, out, manifest)

    assert first[0].unpacked == second[0].unpacked == (member,)
    assert member.read_bytes() == b"hello"
    assert os.path.samestat(member.stat(), written), "what is there as declared is left alone"
    member.unlink()
    fetched(mirror, out, manifest)
    assert member.read_bytes() == b"hello"
    assert files_in(out) == ["data", "data.tar.gz", "data/Venus", "data/Venus/cluster_log.csv"]
    assert len(mirror.requests) == 1
