"""Machines from TOML, and from a trace's own table; what is wrong is named."""

from pathlib import Path

import polars as pl
import pytest

from features.tables import Machines
from pipelines.errors import BadUsage
from pipelines.simulation.cluster_file import cluster_file, recorded_cluster
from scheduler_core.cluster import Machine
from tests.pipelines.lake.canonical import canonical

TWO_KINDS = """
[[machines]]
name = "a"
count = 2
cpu_cores = 96
mem_gib = 512.5
gpus = 8
gpu_type = "T4"

[[machines]]
name = "b"
cpu_cores = 64.0
mem_gib = 256
gpus = 0
"""


def written(folder: Path, text: str) -> Path:
    path = folder / "cluster.toml"
    path.write_text(text)
    return path


def test_tables_become_machines_in_their_order(tmp_path: Path) -> None:
    spec = cluster_file(written(tmp_path, TWO_KINDS))

    assert spec.machines == (
        Machine(name="a-0", cpu_cores=96.0, mem_gib=512.5, gpus=8, gpu_type="T4"),
        Machine(name="a-1", cpu_cores=96.0, mem_gib=512.5, gpus=8, gpu_type="T4"),
        Machine(name="b", cpu_cores=64.0, mem_gib=256.0, gpus=0),
    )
    assert spec.most_gpus == 8
    assert spec.note() == "cluster (cluster.toml): 3 machines, 16 GPUs, 256 cores, 1281 GiB, GPU types T4"


@pytest.mark.parametrize(
    ("found", "instead", "expected"),
    [
        ("gpus = 8\n", "", r"\[\[machines\]\] 1, gpus: missing"),
        ("gpus = 8", 'gpus = "eight"', r"\[\[machines\]\] 1, gpus: expected a whole number, found 'eight'"),
        ("gpus = 0", "gpus = -1", r"\[\[machines\]\] 2, gpus: expected at least 0, found '-1'"),
        ("cpu_cores = 96", "cpu_cores = inf", r"\[\[machines\]\] 1, cpu_cores: .* finite"),
        ("gpu_type", "gpu_kind", r"\[\[machines\]\] 1, gpu_kind: no such field, found 'T4'"),
        ('name = "b"', 'name = "a-1"', r"found several machines named 'a-1'"),
        ("[[machines]]", "[[nodes]]", "machines: missing"),
        ("[[machines]]", "[machines", "is not valid TOML"),
        ("gpus = 8", "gpus = 100000000000000000000", r"1, gpus: expected at most 1000, found '1000000"),
        ("gpus = 8", f"gpus = {'9' * 5000}", "is not valid TOML"),
    ],
)
def test_what_is_wrong_is_named_by_table_and_key(tmp_path: Path, found: str, instead: str, expected: str) -> None:
    assert found in TWO_KINDS

    with pytest.raises(BadUsage, match=expected):
        cluster_file(written(tmp_path, TWO_KINDS.replace(found, instead)))


def test_a_faulty_table_is_not_said_to_be_missing_too(tmp_path: Path) -> None:
    with pytest.raises(BadUsage) as caught:
        cluster_file(written(tmp_path, '[[machines]]\nname = "a"\ncpu_cores = 1\nmem_gib = 1\ngpus = -1\n'))
    assert "at least 1 item" not in str(caught.value)


@pytest.mark.parametrize("text", ["", "machines = []", 'machines = "four"', "[machines"])
def test_the_example_that_a_faulty_file_is_answered_with_is_a_cluster(tmp_path: Path, text: str) -> None:
    with pytest.raises(BadUsage, match="expected tables of machines, as ") as caught:
        cluster_file(written(tmp_path, text))

    _, _, example = str(caught.value).partition("expected tables of machines, as ")
    assert cluster_file(written(tmp_path, example)).note() == (
        "cluster (cluster.toml): 4 machines, 32 GPUs, 384 cores, 2048 GiB, GPU types T4"
    )


def table(*rows: dict[str, object]) -> pl.DataFrame:
    blank = {"trace": "t", "cluster": "c", "gpu_type": None, "cpu_cores": None, "mem_gib": None, "gpus": 2}
    return canonical([blank | {"machine": f"m{at}"} | row for at, row in enumerate(rows)], Machines)


def test_the_machine_table_is_taken_as_it_is_and_what_it_does_not_tell_is_said() -> None:
    spec = recorded_cluster(table({"gpus": 8, "gpu_type": "V100"}, {}).reverse(), "philly")

    assert [machine.name for machine in spec.machines] == ["m0", "m1"]
    assert [machine.gpus for machine in spec.machines] == [8, 2]
    assert spec.unstated == ("cpu_cores", "mem_gib")
    assert spec.note().endswith("it does not state cpu_cores and mem_gib: not limited")


def test_a_trace_without_machines_and_one_of_several_clusters_are_refused() -> None:
    with pytest.raises(BadUsage, match=r"no table of machines in helios; .* --cluster-from FILE.toml"):
        recorded_cluster(table({}).clear(), "helios")
    with pytest.raises(BadUsage, match="machines of the clusters a, b in helios; choose one with --cluster"):
        recorded_cluster(table({"cluster": "a"}, {"cluster": "b"}), "helios")
