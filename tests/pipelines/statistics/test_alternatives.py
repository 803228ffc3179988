"""Clusters of openb are alternatives: one by default, none added up; lists without times have no arrivals."""

from collections.abc import Sequence
from pathlib import Path

import pytest
from typer.testing import CliRunner

from pipelines.cli import app
from pipelines.lake.ingest import ingest
from pipelines.lake.lake import Lake
from pipelines.lake.sources import SOURCES
from pipelines.lake.sources.openb import OPENB
from pipelines.report.parts import Section
from pipelines.report.report import Order, sections
from pipelines.statistics import STATISTICS, Answer, cluster_note
from tests.pipelines.report.tiny import tables

BARE = "name,cpu_milli,memory_mib,num_gpu,gpu_milli"
TIMED = f"{BARE},gpu_spec,qos,pod_phase,creation_time,deletion_time,scheduled_time"
LISTS = {
    "default": [TIMED, "p1,1000,1024,1,500,,LS,Running,0,900,10", "p2,1000,1024,2,1000,,LS,Succeeded,7200,9000,7210"],
    "bare": [BARE, "p1,1000,1024,1,500", "p2,1000,1024,2,1000", "p3,1000,1024,2,1000"],
}


def openb(folder: Path, *names: str) -> Lake:
    """Ingest two nodes of two GPUs, and the pod lists named."""
    (folder / "raw").mkdir()
    nodes = "sn,cpu_milli,memory_mib,gpu,model\na,64000,262144,2,T4\nb,64000,262144,2,T4\n"
    (folder / "raw" / "openb_node_list_gpu_node.csv").write_text(nodes)
    for name in names:
        (folder / "raw" / f"openb_pod_list_{name}.csv").write_text("\n".join(LISTS[name]) + "\n")
    ingest("openb", folder / "raw", folder / "lake")
    return Lake(folder / "lake")


def answer(lake: Lake, statistic: str, by: str | None = None, cluster: str | None = None) -> Answer:
    return STATISTICS[statistic].answer(lake, "openb", by, cluster)


def test_one_list_stands_for_the_trace(tmp_path: Path) -> None:
    with openb(tmp_path, "bare", "default") as lake:
        jobs, machines = answer(lake, "period"), answer(lake, "machine_classes")
        other = answer(lake, "period", cluster="bare")

    assert lake.manifest("openb").representative == "default"
    assert (jobs.cluster, jobs.rows["tasks"].item()) == ("default", 2)
    assert (machines.rows["machines"].item(), machines.rows["total_gpus"].item()) == (2, 4)
    assert (other.cluster, other.rows["tasks"].item()) == ("bare", 3)


def test_each_list_is_told_where_lists_are_split_by(tmp_path: Path) -> None:
    with openb(tmp_path, "bare", "default") as lake:
        rows = answer(lake, "machine_classes", by="cluster").rows
        files = answer(lake, "files").rows

    assert rows.select("cluster", "machines").rows() == [("bare", 2), ("default", 2)]
    assert files["cluster"].unique().sort().to_list() == ["bare", "default"]


def test_the_command_says_which_list_it_tells(tmp_path: Path) -> None:
    lake = openb(tmp_path, "bare", "default")
    run = ["stats", "period", "--lake", str(lake.path)]

    told, named = (CliRunner().invoke(app, [*run, *more]) for more in ([], ["--cluster", "bare"]))

    assert "openb: of its 2 clusters default alone: they are alternatives" in told.stderr
    assert "alternatives" not in named.stderr
    assert cluster_note(lake, "openb") is not None


def texts(made: Sequence[Section]) -> list[str]:
    return [part.text for section in made for part in section.parts if hasattr(part, "text")]


@pytest.mark.slow
def test_the_report_tells_one_list_and_says_so(tmp_path: Path) -> None:
    with openb(tmp_path, "bare", "default") as lake:
        made = sections(lake, ("openb",), Order(title="t"))
        other = sections(lake, ("openb",), Order(title="t", cluster="bare"))

    [facts] = tables(made)["traces"].rows.to_dicts()
    assert (facts["jobs"], facts["machines"], facts["machines_gpus"]) == (2, 2, 4)
    assert any("2 clusters default alone" in text for text in texts(made))
    [facts] = tables(other)["traces"].rows.to_dicts()
    assert (facts["jobs"], facts["first_submit"], facts["days"]) == (3, None, None)
    assert not any("clusters default alone" in text for text in texts(other))


@pytest.mark.slow
@pytest.mark.parametrize("unit", ["hour", "weekday"])
def test_a_list_without_times_tells_no_arrivals(tmp_path: Path, unit: str) -> None:
    with openb(tmp_path, "bare", "default") as lake:
        whole = answer(lake, f"arrivals_by_{unit}")
        bare = answer(lake, f"arrivals_by_{unit}", cluster="bare")
        split = answer(lake, f"arrivals_by_{unit}", by="cluster")

    assert whole.rows["jobs"].sum() == 2
    assert bare.reason is not None
    assert "the same submission time" in bare.reason
    assert split.rows["cluster"].unique().to_list() == ["default"]


def test_other_sources_have_parts() -> None:
    assert {name for name, source in SOURCES.items() if source.representative} == {OPENB.name}
