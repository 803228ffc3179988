"""The manifest: its golden form, its round trip, and accounts that must add up."""

import json
import os
from pathlib import Path
from typing import Any

import pytest

from pipelines.errors import LakeError
from pipelines.lake.ingest import ingest
from pipelines.lake.manifest import Account, flat, from_json

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


def test_a_manifest_survives_its_json(published: Published, tmp_path: Path) -> None:
    trace = published["pai"]
    manifest = ingest("pai", trace.write(tmp_path / "from", trace.spoilers), tmp_path / "lake").manifest

    assert from_json(manifest.to_json(), "pai") == manifest


@pytest.mark.parametrize("text", ["", "{}", "[]", '{"trace": 1}', "not json"])
def test_a_text_that_is_no_manifest_is_an_error(text: str) -> None:
    with pytest.raises(LakeError, match="'pai' cannot be read"):
        from_json(text, "pai")


def _account(rows_in: int) -> Account:
    return Account(
        cluster="c", table="t", file="f", feeds="jobs", rows_in=rows_in, rows_good=3, quarantined={"a": 1, "b": 2}
    )


def test_an_account_that_adds_up_closes() -> None:
    assert _account(6).close().rows_quarantined == 3


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
