"""The study of departures on a tiny openb with times: its runs, its notes, and its folder."""

from pathlib import Path

import numpy as np
import pytest

from pipelines.errors import BadUsage
from pipelines.lake.ingest import ingest
from pipelines.lake.lake import Lake
from pipelines.studies.fragmentation import departures
from pipelines.studies.fragmentation.churn import Churn, churn_of, loaded
from pipelines.studies.study import Context, write
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
    config = departures.Config(arms=("best_fit", "fgd", "fgd, last 100"), loads=(1.0,), every=2, seeds=2)
    with Lake(place) as lake:
        found = departures.run(config, Context(lake=lambda: lake))

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
        departures.run(departures.Config(arms=("fgd, last 5",)), Context(lake=lambda: lake))
