import hashlib
import io
import stat
import tarfile
import zipfile
from collections.abc import Callable
from pathlib import Path

import pytest

from pipelines.errors import FetchError
from pipelines.fetch import archives
from pipelines.fetch.archives import unpack
from pipelines.fetch.publication import Member

NOISE = b"".join(hashlib.sha256(bytes([n])).digest() for n in range(256))
LOG = Member(path="Venus/log.csv")
Pack = Callable[[Path, list[tuple[str, bytes]]], Path]


def pack_tar(folder: Path, members: list[tuple[str, bytes]]) -> Path:
    path = folder / "data.tar.gz"
    with tarfile.open(path, "w:gz") as tar:
        for name, body in members:
            info = tarfile.TarInfo(name)
            info.size = len(body)
            tar.addfile(info, io.BytesIO(body))
    return path


def pack_zip(folder: Path, members: list[tuple[str, bytes]]) -> Path:
    path = folder / "data.zip"
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as packed:
        for name, body in members:
            info = zipfile.ZipInfo("x")
            info.filename = name  # the constructor would clean it
            packed.writestr(info, body, zipfile.ZIP_DEFLATED)
    return path


both = pytest.mark.parametrize("pack", [pack_tar, pack_zip])


def _everything(folder: Path) -> list[str]:
    return sorted(str(path.relative_to(folder)) for path in folder.rglob("*"))


@both
@pytest.mark.parametrize("wrapper", ["", "data/", "deep/er/"])
def test_members_are_found_in_whatever_folder_they_are_wrapped(tmp_path: Path, pack: Pack, wrapper: str) -> None:
    archive = pack(tmp_path, [(f"{wrapper}Venus/log.csv", b"jobs"), (f"{wrapper}OtherVenus/log.csv", b"no")])

    paths = unpack(archive, tmp_path / "out", [LOG], max_bytes=100)

    assert paths == [tmp_path / "out" / "Venus" / "log.csv"]
    assert paths[0].read_bytes() == b"jobs"
    assert _everything(tmp_path) == sorted([archive.name, "out", "out/Venus", "out/Venus/log.csv"])


@both
@pytest.mark.parametrize(
    "name",
    [
        "../log.csv",
        "../../Venus/log.csv",
        "Venus/../../Venus/log.csv",
        "/Venus/log.csv",
        "/etc/cron.d/log.csv",
        "..\\Venus\\log.csv",
        "C:/Venus/log.csv",
        "..",
    ],
)
def test_a_member_outside_the_target_is_refused(tmp_path: Path, pack: Pack, name: str) -> None:
    archive = pack(tmp_path, [("Venus/log.csv", b"jobs"), (name, b"evil")])

    with pytest.raises(FetchError, match="outside the target"):
        unpack(archive, tmp_path / "inner" / "out", [LOG], max_bytes=100)

    assert _everything(tmp_path) == [archive.name]


@pytest.mark.parametrize("kind", [tarfile.SYMTYPE, tarfile.LNKTYPE, tarfile.CHRTYPE, tarfile.BLKTYPE, tarfile.FIFOTYPE])
def test_a_link_or_device_in_a_tar_is_refused(tmp_path: Path, kind: bytes) -> None:
    archive = tmp_path / "data.tar.gz"
    with tarfile.open(archive, "w:gz") as tar:
        info = tarfile.TarInfo("Venus/log.csv")
        info.type, info.linkname = kind, "/etc/passwd"
        tar.addfile(info)

    with pytest.raises(FetchError, match="link or a device"):
        unpack(archive, tmp_path / "out", [LOG], max_bytes=100)

    assert _everything(tmp_path) == [archive.name]


def test_a_link_in_a_zip_is_refused(tmp_path: Path) -> None:
    archive = tmp_path / "data.zip"
    with zipfile.ZipFile(archive, "w") as packed:
        info = zipfile.ZipInfo("Venus")
        info.external_attr = (stat.S_IFLNK | 0o777) << 16
        packed.writestr(info, "/etc")
        packed.writestr("Venus/log.csv", b"jobs")

    with pytest.raises(FetchError, match="link or a device"):
        unpack(archive, tmp_path / "out", [LOG], max_bytes=100)

    assert _everything(tmp_path) == [archive.name]


def test_folders_are_not_members(tmp_path: Path) -> None:
    archive = tmp_path / "data.tar.gz"
    with tarfile.open(archive, "w:gz") as tar:
        info = tarfile.TarInfo("Venus/log.csv")
        info.type = tarfile.DIRTYPE
        tar.addfile(info)

    with pytest.raises(FetchError, match=r"holds no Venus/log\.csv"):
        unpack(archive, tmp_path / "out", [LOG], max_bytes=100)


@both
def test_an_archive_without_a_wanted_member_is_refused_whole(tmp_path: Path, pack: Pack) -> None:
    archive = pack(tmp_path, [("a", b"1")])

    with pytest.raises(FetchError, match=r"holds no Venus/log\.csv"):
        unpack(archive, tmp_path / "out", [Member(path="a"), LOG], max_bytes=100)

    assert _everything(tmp_path) == [archive.name]


@both
def test_a_member_held_twice_is_refused(tmp_path: Path, pack: Pack) -> None:
    archive = pack(tmp_path, [("one/Venus/log.csv", b"1"), ("two/Venus/log.csv", b"2")])

    with pytest.raises(FetchError, match="twice"):
        unpack(archive, tmp_path / "out", [LOG], max_bytes=100)

    assert _everything(tmp_path) == [archive.name]


@both
@pytest.mark.parametrize(
    "declared",
    [Member(path="Venus/log.csv", size_bytes=5), Member(path="Venus/log.csv", size_bytes=4, sha256="0" * 64)],
)
def test_a_member_other_than_declared_is_refused(tmp_path: Path, pack: Pack, declared: Member) -> None:
    archive = pack(tmp_path, [("Venus/log.csv", b"jobs")])

    with pytest.raises(FetchError, match=r"Venus/log\.csv in data\.\S+: found .*expected"):
        unpack(archive, tmp_path / "out", [declared], max_bytes=100)

    assert _everything(tmp_path) == [archive.name]


@both
@pytest.mark.parametrize("name", ["Venus/log.csv", "unwanted"])
def test_an_archive_bomb_is_refused(tmp_path: Path, pack: Pack, name: str) -> None:
    archive = pack(tmp_path, [("Venus/log.csv" if name == "unwanted" else "first", b"jobs"), (name, bytes(50_000_000))])
    assert archive.stat().st_size < 100_000

    with pytest.raises(FetchError, match="unpacks to more than the 1000 bytes"):
        unpack(archive, tmp_path / "out", [LOG], max_bytes=1000)

    assert _everything(tmp_path) == [archive.name]


def test_a_tar_whose_headers_are_the_bomb_is_refused(tmp_path: Path) -> None:
    archive = tmp_path / "data.tar.gz"
    with tarfile.open(archive, "w:gz", format=tarfile.PAX_FORMAT) as tar:
        info = tarfile.TarInfo("Venus/log.csv")
        info.pax_headers = {"comment": "x" * 30_000_000}
        tar.addfile(info)

    with pytest.raises(FetchError, match="unpacks to more than"):
        unpack(archive, tmp_path / "out", [LOG], max_bytes=1000)


@both
def test_too_many_members_are_refused(tmp_path: Path, pack: Pack, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(archives, "MAX_MEMBERS", 3)
    archive = pack(tmp_path, [("Venus/log.csv", b"jobs"), ("1", b""), ("2", b""), ("3", b"")])

    with pytest.raises(FetchError, match="3 members"):
        unpack(archive, tmp_path / "out", [LOG], max_bytes=100)


@both
@pytest.mark.parametrize("kept_share", [0.0, 0.3, 0.9])
def test_a_truncated_archive_is_refused(tmp_path: Path, pack: Pack, kept_share: float) -> None:
    archive = pack(tmp_path, [("Venus/log.csv", NOISE)])
    whole = archive.read_bytes()
    archive.write_bytes(whole[: int(len(whole) * kept_share)])

    with pytest.raises(FetchError, match=r"is damaged|holds no"):
        unpack(archive, tmp_path / "out", [LOG], max_bytes=10_000)

    assert _everything(tmp_path) == [archive.name]


def test_a_flipped_bit_is_refused(tmp_path: Path) -> None:
    archive = pack_zip(tmp_path, [("Venus/log.csv", NOISE)])
    body = bytearray(archive.read_bytes())
    body[1000] ^= 0x10
    archive.write_bytes(bytes(body))

    with pytest.raises(FetchError, match="is damaged"):
        unpack(archive, tmp_path / "out", [LOG], max_bytes=10_000)

    assert _everything(tmp_path) == [archive.name]


def test_an_encrypted_member_is_refused(tmp_path: Path) -> None:
    archive = pack_zip(tmp_path, [("Venus/log.csv", b"jobs")])
    body = bytearray(archive.read_bytes())
    body[6] |= 1  # the local header's flag bit 0
    body[body.index(b"PK\x01\x02") + 8] |= 1  # and the central directory's
    archive.write_bytes(bytes(body))

    with pytest.raises(FetchError, match="encrypted"):
        unpack(archive, tmp_path / "out", [LOG], max_bytes=100)


@both
def test_what_a_killed_run_left_is_cleared(tmp_path: Path, pack: Pack) -> None:
    archive = pack(tmp_path, [("Venus/log.csv", b"jobs")])
    staging = tmp_path / f".{archive.name}.unpacking"
    (staging / "Venus").mkdir(parents=True)
    (staging / "Venus" / "log.csv").write_bytes(b"jo")

    unpack(archive, tmp_path / "out", [LOG], max_bytes=100)

    assert (tmp_path / "out" / "Venus" / "log.csv").read_bytes() == b"jobs"
    assert not staging.exists()
