"""Files that look untouched are not read again; whatever else they did, they are."""

import json
import os
from pathlib import Path
from typing import Any

import pytest

from pipelines.errors import SourceError
from pipelines.lake import signatures
from pipelines.lake.ingest import ingest
from pipelines.lake.lake import Lake
from pipelines.lake.manifest import Account
from pipelines.lake.signatures import Signatures
from pipelines.lake.sources.archive import fingerprint

Published = dict[str, Any]


@pytest.fixture
def read(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Return the names of the files that are read for their digest, as they are."""
    names: list[str] = []

    def noted(path: Path) -> tuple[int, str]:
        names.append(path.name)
        return fingerprint(path)

    monkeypatch.setattr(signatures, "fingerprint", noted)
    return names


def test_untouched_files_are_not_read_again(published: Published, tmp_path: Path, read: list[str]) -> None:
    folder = published["pai"].write(tmp_path / "from")
    ingest("pai", folder, tmp_path / "lake")
    assert sorted(read) == sorted(published["pai"].files)
    read.clear()

    assert not ingest("pai", folder, tmp_path / "lake").changed

    assert read == []


def test_a_touched_file_is_read_and_another_with_its_size_and_time_is_seen(
    published: Published, tmp_path: Path, read: list[str]
) -> None:
    folder = published["pai"].write(tmp_path / "from")
    ingest("pai", folder, tmp_path / "lake")
    path = folder / "pai_job_table.csv"
    read.clear()
    path.touch()
    assert not ingest("pai", folder, tmp_path / "lake").changed
    assert read == ["pai_job_table.csv"]

    before = path.stat()
    path.write_text(path.read_text().replace("u1", "u9"))
    os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))

    assert ingest("pai", folder, tmp_path / "lake").changed


@pytest.mark.parametrize("torn", ["", "{", "[]", "3", '{"a": 1}', '{"pai_job_table.csv": [[1, 2], "x"]}'])
def test_torn_signatures_are_made_again(torn: str, published: Published, tmp_path: Path, read: list[str]) -> None:
    folder = published["pai"].write(tmp_path / "from")
    ingest("pai", folder, tmp_path / "lake")
    seen = tmp_path / "lake" / "manifests" / "pai.seen"
    whole = seen.read_text()
    seen.write_text(torn)
    read.clear()

    assert not ingest("pai", folder, tmp_path / "lake").changed

    assert sorted(read) == sorted(published["pai"].files)
    assert json.loads(seen.read_text()) == json.loads(whole)


def test_a_file_that_changes_while_it_is_read_commits_nothing(
    published: Published, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = published["pai"].write(tmp_path / "from")
    close = Account.close

    def written_meanwhile(self: Account) -> Account:
        (folder / "pai_job_table.csv").touch()
        return close(self)

    monkeypatch.setattr(Account, "close", written_meanwhile)
    with pytest.raises(SourceError, match="changed while they were read"):
        ingest("pai", folder, tmp_path / "lake")

    assert Lake(tmp_path / "lake").traces() == []


def test_a_file_that_is_gone_does_not_still_hold(tmp_path: Path) -> None:
    (tmp_path / "a").write_text("x")
    seen = Signatures.read(tmp_path / "seen")
    seen.input_of("a", tmp_path / "a")
    assert seen.still_hold(tmp_path)

    (tmp_path / "a").unlink()

    assert not seen.still_hold(tmp_path)
