"""The manifest: its golden form, its round trip, accounts that must add up, and the signatures of the files."""

import json
import os
from pathlib import Path
from typing import Any

import pytest

from pipelines.errors import LakeError, SourceError
from pipelines.lake import manifest as manifests
from pipelines.lake.ingest import ingest
from pipelines.lake.lake import Lake
from pipelines.lake.manifest import Account, fingerprint, flat, from_json

GOLDEN = Path(__file__).parent / "golden"
Published = dict[str, Any]


@pytest.mark.parametrize("source", ["pai", "helios", "philly", "openb"])
def test_the_manifest_of_a_spoiled_trace_is_the_golden_one(source: str, published: Published, tmp_path: Path) -> None:
    """Run with `TAUT_GOLDEN=write` to accept a change; sizes and content names are DuckDB's and left out."""
    trace = published[source]
    ingest(source, trace.write(tmp_path / "from", trace.spoilers), tmp_path / "lake")

    found = json.loads((tmp_path / "lake" / "manifests" / f"{source}.json").read_text())
    for output in found["outputs"]:
        del output["bytes"]
        output["path"] = output["path"].rsplit("/", 1)[0] + "/<content>.parquet"

    golden = GOLDEN / f"manifest-{source}.json"
    if os.environ.get("TAUT_GOLDEN") == "write":
        golden.write_text(json.dumps(found, indent=2) + "\n")
    assert found == json.loads(golden.read_text())


@pytest.mark.parametrize("text", ["", "{}", "[]", '{"trace": 1}', "not json"])
def test_a_text_that_is_no_manifest_is_an_error(text: str) -> None:
    with pytest.raises(LakeError, match="'pai' cannot be read"):
        from_json(text, "pai")


def _account(rows_in: int) -> Account:
    return Account(
        cluster="c",
        table="t",
        file="f",
        feeds="jobs",
        rows_in=rows_in,
        rows_good=3,
        rows_quarantined=3,
        quarantined={"a": 2, "b": 2},
    )


@pytest.mark.parametrize(
    "path", ["../x.parquet", "jobs/../../x", "/etc/passwd", "jobs", "jobs//x", "usage/x.parquet", ""]
)
def test_a_manifest_names_no_file_outside_the_folder_of_its_table(path: str) -> None:
    output = {"table": "jobs", "cluster": "c", "path": path, "rows": 1, "bytes": 1}
    held = {"trace": "pai", "inputs": [], "accounts": [], "outputs": [output], "warnings": [], "format_version": 2}
    text = json.dumps(held)
    with pytest.raises(LakeError, match="the table file"):
        from_json(text, "pai")


@pytest.mark.parametrize("rows_in", [5, 7])
def test_an_account_that_does_not_add_up_is_an_error(rows_in: int) -> None:
    with pytest.raises(LakeError, match=f"{rows_in} rows in, but 3 good and 3 quarantined make 6"):
        _account(rows_in).close()


def test_flat_rows_say_what_went_in_and_came_out(published: Published, tmp_path: Path) -> None:
    trace = published["helios"]
    manifest = ingest("helios", trace.write(tmp_path / "from", trace.spoilers[:2]), tmp_path / "lake").manifest

    rows = {(row["cluster"], row["table"]): row for row in flat(manifest)}
    log = rows["Venus", "log"]
    assert (log["rows_in"], log["rows_good"], log["rows_quarantined"], log["rows_out"]) == (5, 3, 2, 3)
    assert log["rules"] == "column_count=1 unknown_status=1"
    assert (rows["Venus", "gpu_number"]["rows_in"], rows["Venus", "gpu_number"]["rows_out"]) == (2, 4)
    assert rows["Earth", "gpu_number"]["file"] is None


@pytest.fixture
def read(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Return the names of the files that are read for their digest, as they are."""
    names: list[str] = []

    def noted(path: Path) -> tuple[int, str]:
        names.append(path.name)
        return fingerprint(path)

    monkeypatch.setattr(manifests, "fingerprint", noted)
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


@pytest.mark.slow
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
