"""Two hundred spoiled files of every source: each ends in a clear error or in counted quarantine, and nothing else."""

import gzip
import io
import random
import shutil
import tarfile
from collections.abc import Callable
from contextlib import suppress
from math import ceil
from pathlib import Path
from typing import Final

import pytest

from pipelines.errors import SourceError
from pipelines.lake.ingest import ingest
from pipelines.lake.manifest import Manifest
from tests.pipelines.conftest import PUBLISHED, PublishedTrace
from tests.pipelines.lake.sources.mutations import MUTATIONS, check_ended_well, state
from tests.pipelines.lake.sources.mutations import quick as quick

FILES: Final = 200
KINDS: Final = {source: len(MUTATIONS) + (3 if source in ("pai", "philly") else 1) for source in PUBLISHED}
"""In how many ways a source's files are spoiled: plain, as a gzip that lies, and where there are archives as a tar."""


def _lying_gzip(data: bytes, rng: random.Random) -> bytes:
    """Return a gzip file that is cut, that holds other bytes than its checksum says, or that is none."""
    packed = bytearray(gzip.compress(data, mtime=0))
    lie = rng.randrange(4)
    if lie == 0:
        return bytes(packed[: rng.randrange(len(packed))])
    if lie == 1:
        packed[-rng.randint(1, 8)] ^= 1 << rng.randrange(8)
    if lie == 2:
        packed[rng.randrange(10, len(packed))] ^= 1 << rng.randrange(8)
    return data if lie == 3 else bytes(packed)


def _tarred(member: tarfile.TarInfo, data: bytes) -> bytes:
    out = io.BytesIO()
    member.size = 0 if member.issym() or member.islnk() else len(data)
    with tarfile.open(fileobj=out, mode="w:gz") as archive:
        archive.addfile(member, io.BytesIO(data) if member.size else None)
    return out.getvalue()


def _escaping_tar(name: str, data: bytes, rng: random.Random) -> bytes:
    """Return a tar archive whose member leads outside: by its path, or as a link."""
    member = tarfile.TarInfo(rng.choice((f"../{name}", f"/tmp/{name}", f"a/../../{name}", name)))
    if member.name == name or rng.random() < 0.3:
        member.type = rng.choice((tarfile.SYMTYPE, tarfile.LNKTYPE))
        member.linkname = "../../outside"
    return _tarred(member, data)


def _lying_tar(name: str, data: bytes, rng: random.Random) -> bytes:
    """Return a tar archive that is cut, bent, or says a size that it does not have."""
    whole = gzip.decompress(_tarred(tarfile.TarInfo(name), data))
    lie = rng.randrange(3)
    if lie == 0:
        whole = whole[: rng.randrange(512, 512 + len(data))]
    if lie == 1:
        bent = bytearray(whole)
        bent[rng.randrange(512)] ^= 1 << rng.randrange(8)
        whole = bytes(bent)
    packed = gzip.compress(whole, mtime=0)
    return packed[: rng.randrange(1, len(packed))] if lie == 2 else packed


def check_ends_well(trace: PublishedTrace, folder: Path, place: Path) -> None:
    """Ingest a spoiled folder: a clear error and nothing committed, or tables that hold and accounts that close."""
    before = state(folder)
    manifest: Manifest | None = None
    with suppress(SourceError):
        manifest = ingest(trace.source, folder, place / "lake").manifest
    check_ended_well(place, manifest, before)


def check_rounds_end_well(
    tmp_path: Path, seed: str, spoil: Callable[[Path, random.Random], None], trace: PublishedTrace
) -> None:
    rng = random.Random(seed)
    for nth in range(ceil(FILES / KINDS[trace.source])):
        place = tmp_path / str(nth)
        folder = trace.write(place / "from", tuple(rng.sample(trace.spoilers, min(3, len(trace.spoilers)))))
        spoil(folder, rng)
        check_ends_well(trace, folder, place)
        shutil.rmtree(place)


@pytest.mark.parametrize("mutation", MUTATIONS)
@pytest.mark.parametrize("source", PUBLISHED)
@pytest.mark.slow
def test_a_spoiled_file_ends_in_an_error_or_in_quarantine(source: str, mutation: str, tmp_path: Path) -> None:
    trace = PUBLISHED[source]

    def spoil(folder: Path, rng: random.Random) -> None:
        path = folder / rng.choice(sorted(trace.files))
        path.write_bytes(MUTATIONS[mutation](path.read_bytes(), rng))

    check_rounds_end_well(tmp_path, f"{source} {mutation}", spoil, trace)


@pytest.mark.parametrize("source", PUBLISHED)
@pytest.mark.slow
def test_a_gzip_that_lies_ends_in_an_error(source: str, tmp_path: Path) -> None:
    trace = PUBLISHED[source]

    def spoil(folder: Path, rng: random.Random) -> None:
        path = folder / rng.choice(sorted(trace.files))
        path.with_name(path.name + ".gz").write_bytes(_lying_gzip(path.read_bytes(), rng))
        path.unlink()

    check_rounds_end_well(tmp_path, source, spoil, trace)


def _archived(source: str, folder: Path, rng: random.Random) -> tuple[Path, str, bytes]:
    """Take a file of the folder away; return the archive that may hold it, its name there, and its bytes."""
    names = sorted(PUBLISHED[source].files)
    path = folder / rng.choice(names)
    data = path.read_bytes()
    path.unlink()
    if source == "philly":
        return folder / "trace-data.tar.gz", path.name, data
    return path.with_suffix(".tar.gz"), path.name, data


@pytest.mark.parametrize("pack", [_escaping_tar, _lying_tar])
@pytest.mark.parametrize("source", ["pai", "philly"])
@pytest.mark.slow
def test_a_tar_that_lies_or_leads_outside_ends_in_an_error(
    source: str, pack: Callable[[str, bytes, random.Random], bytes], tmp_path: Path
) -> None:
    def spoil(folder: Path, rng: random.Random) -> None:
        archive, name, data = _archived(source, folder, rng)
        archive.write_bytes(pack(name, data, rng))

    check_rounds_end_well(tmp_path, f"{source} {pack.__name__}", spoil, PUBLISHED[source])
