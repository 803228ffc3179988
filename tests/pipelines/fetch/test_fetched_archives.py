import io
import os
import tarfile
from pathlib import Path

import pytest

from pipelines.errors import FetchError
from tests.pipelines.fetch.mirror import Mirror, fetched, files_in, manifest_of

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


def test_an_archive_with_a_member_outside_the_target_leaves_only_itself(
    mirror: Mirror, tmp_path: Path, out: Path
) -> None:
    mirror.body = _tar({"Venus/cluster_log.csv": b"hello", "../../evil": b"x"})

    with pytest.raises(FetchError, match="outside the target"):
        fetched(mirror, out, manifest_of(tmp_path, body=mirror.body, name="data.tar.gz", more=UNPACK))

    assert files_in(out) == ["data.tar.gz"]
    assert files_in(tmp_path) == ["out", "out/data.tar.gz", "trace.toml"]
