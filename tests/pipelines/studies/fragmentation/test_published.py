"""Published results: long rows with our names, and files that are not in their format."""

import re
from pathlib import Path

import pytest

from pipelines.errors import SourceError
from pipelines.studies.fragmentation.published import (
    ALLOCATED,
    POLICIES,
    SCHEMA,
    by_workload,
    no_results,
    read_published,
)
from tests.pipelines.studies.fragmentation.tiny import results


def test_runs_are_long_rows_under_our_names(tmp_path: Path) -> None:
    found = read_published(results(tmp_path, {"fgd": [95.0, 96.0], "dot_product": [90.0]}))

    assert found.columns == list(SCHEMA)
    assert found.filter(arrived_pct=100).rows() == [
        ("default", "dot_product", 42, 100, 10.0),
        ("default", "fgd", 42, 100, 5.0),
        ("default", "fgd", 43, 100, 4.0),
    ]
    assert found.schema == no_results().schema


def test_runs_of_other_placements_and_inflations_are_left_out(tmp_path: Path) -> None:
    folder = results(tmp_path, {"fgd": [95.0]})
    with (folder / ALLOCATED).open("a") as file:
        file.write("openb_pod_list_default,07-Other,1.3,42,6212,1,2\nopenb_pod_list_default,06-FGD,1.1,42,6212,1,2\n")

    assert read_published(folder).height == 2


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (None, "cannot be read"),
        (b"", "cannot be read"),
        (b"\xff\xfe,\x00\n\x81,\x82", "cannot be read"),
        (b"workload,seed,100\nx,42,1\n", "cannot be read"),
        (b"workload,sc_policy,tune,seed,100\nx,06-FGD,1.3,42,many\n", "cannot be read"),
        (b"workload,sc_policy,tune,seed,100\nx,06-FGD,1.3,42,1,2,3\n", "cannot be read"),
        (b"workload,sc_policy,tune,seed,hundred\nx,06-FGD,1.3,42,1\n", "lacks runs"),
        (b"workload,sc_policy,tune,seed,100\nx,FGD,1.3,42,1\n", "lacks runs"),
        (b"workload,sc_policy,tune,seed,100\nx,06-FGD,1.3,42,1\nx,06-FGD,1.3,42,1\n", "some twice"),
    ],
)
def test_a_file_that_is_not_in_its_format_is_refused(content: bytes | None, said: str, tmp_path: Path) -> None:
    folder = results(tmp_path, {"fgd": [95.0]})
    (folder / ALLOCATED).unlink()
    if content is not None:
        (folder / ALLOCATED).write_bytes(content)

    with pytest.raises(SourceError, match=f"{re.escape(ALLOCATED)}.*{said}"):
        read_published(folder)


def test_the_real_results_have_the_figures_they_are_known_for(traces: Path) -> None:
    found = read_published(traces / "openb" / "expected_results")

    assert found.height == 12 * 6 * 10 * 131
    assert by_workload(found["workload"].unique().to_list()) == [
        *("default", "cpu050", "cpu100", "gpushare40", "gpushare60", "gpushare100"),
        *("gpuspec10", "gpuspec20", "gpuspec33", "multigpu20", "multigpu30", "multigpu50"),
    ]
    medians = {
        policy: found.filter(workload="default", policy=policy, arrived_pct=100)["unallocated_pct"].median()
        for policy in POLICIES
    }
    assert [round(float(str(value)), 2) for value in medians.values()] == [13.75, 9.45, 8.42, 8.2, 7.09, 4.77]
