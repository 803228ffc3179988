"""The studies past the paper on a tiny openb with times: what each comes to, and what a folder holds of it."""

from pathlib import Path

import numpy as np
import polars as pl
import pytest

from pipelines.errors import BadUsage
from pipelines.lake.ingest import ingest
from pipelines.lake.lake import Lake
from pipelines.studies.fragmentation import departures
from pipelines.studies.fragmentation.churn import Churn, churn_of, loaded
from pipelines.studies.study import dealt, differences, summed_up, write
from tests.pipelines.studies.fragmentation.tiny import BIG, NODES, pod_rows

HEADER = "name,cpu_milli,memory_mib,num_gpu,gpu_milli,gpu_spec,qos,pod_phase,creation_time,deletion_time,scheduled_time"


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A lake of the tiny openb, its pods a minute apart, each there for half an hour; one runs for two days."""
    folder = tmp_path_factory.mktemp("timed")
    nodes = ["sn,cpu_milli,memory_mib,gpu,model", *NODES, *BIG]
    (folder / "openb_node_list_gpu_node.csv").write_text("\n".join(nodes) + "\n")
    pods = [
        f"{row},,LS,Succeeded,{60 * at},{60 * at + (172_800 if at == 3 else 1800)},{60 * at}"
        for at, row in enumerate(pod_rows())
    ]
    (folder / "openb_pod_list_default.csv").write_text("\n".join([HEADER, *pods]) + "\n")
    ingest("openb", folder, folder / "lake")
    return folder / "lake"


@pytest.fixture
def churn(place: Path) -> Churn:
    with Lake(place) as lake:
        return churn_of(lake, "openb", "default", every=2)


def test_pods_that_never_leave_are_kept_out_of_loaded_clusters(churn: Churn) -> None:
    assert (len(churn.recorded), len(churn.pods.run_s), churn.left_out) == (40, 39, 1)
    assert sorted(machine.gpus for machine in churn.thinned) == [2, 4, 8]


def test_a_loaded_cluster_is_asked_for_its_load_from_the_beginning(churn: Churn) -> None:
    horizon_s, gpus, asked = 36_000.0, 14, []
    for seed in range(20):
        workload = loaded(churn, 0.8, horizon_s, np.random.default_rng(seed))
        assert (np.diff(workload.arrive_s) >= 0.0).all()
        assert workload.run_s.max() <= 1800.0
        held = workload.request_units[:, 2] / 1000.0
        begin, end = workload.arrive_s, workload.arrive_s + workload.run_s
        asked += [float(held[(begin <= at) & (at < end)].sum()) / gpus for at in (0.0, horizon_s / 2)]
    assert np.mean(asked[0::2]) == pytest.approx(0.8, abs=0.15)
    assert np.mean(asked[1::2]) == pytest.approx(0.8, abs=0.15)


@pytest.mark.slow  # a dozen simulations, and three charts in three forms
def test_departures_tell_fragmentation_its_reasons_and_waits(place: Path, tmp_path: Path) -> None:
    question = departures.Question(arms=("best_fit", "fgd", "fgd, last 100"), loads=(1.0,), every=2, seeds=2)
    with Lake(place) as lake:
        found = departures.ask(lake, question)

    runs = found.frames["runs"]
    assert runs.select("load", "arm").unique().height == 2 * 3
    shares = runs.select(departures.REASONS).sum_horizontal()
    np.testing.assert_allclose(shares, runs["fragmented_pct"], atol=1e-9)
    free = runs["usable_pct"] + runs["fragmented_pct"]
    loaded_free = free.filter(runs["load"] == "1")
    assert loaded_free.max() < free.filter(runs["load"] == departures.RECORDED).max()
    names = {path.name for path in write(found, tmp_path / "out")}
    assert {"rows.json", "runs.parquet", "courses.parquet", "reasons.png", "waits_over_load.svg"} <= names


def test_an_arm_nobody_knows_is_refused(place: Path) -> None:
    with Lake(place) as lake, pytest.raises(BadUsage, match="no arm 'fgd, last 5'; expected random"):
        departures.ask(lake, departures.Question(arms=("fgd, last 5",)))


def test_differences_are_paired_by_seed_and_intervals_come_from_their_spread() -> None:
    runs = pl.DataFrame({"arm": ["a", "b"] * 2, "seed": [0, 0, 1, 1], "wait_s": [1.0, 3.0, 11.0, 13.0]})
    assert differences(runs, (), "arm", "a", ("wait_s",)) == [
        {"arm": "b", "seeds": 2, "wait_s": 2.0, "wait_s_lo": 2.0, "wait_s_hi": 2.0, "less": "a"}
    ]
    (row, _) = summed_up(runs, ("arm",), ("wait_s",))
    assert (row["wait_s"], row["seeds"]) == (6.0, 2)


def test_tasks_come_back_in_their_order_whoever_did_them() -> None:
    assert list(dealt(abs, [-3, 2, -1], 2)) == list(dealt(abs, [-3, 2, -1], 1)) == [3, 2, 1]
