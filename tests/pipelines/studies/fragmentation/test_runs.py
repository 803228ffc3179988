"""Clusters filled up: which arms there are, the same pods for all of them, and the same answer from any processes."""

import numpy as np
import polars as pl
import pytest

from pipelines.engine.processes import Processes
from pipelines.errors import BadUsage
from pipelines.lake.lake import Lake
from pipelines.studies.fragmentation.arms import POLICIES, Arm, arms_of, is_arm
from pipelines.studies.fragmentation.inflation import Inflation
from pipelines.studies.fragmentation.runs import CURVE_SCHEMA, PodList, curve_of, filled_up, pod_list
from tests.pipelines.studies.fragmentation.tiny import tiny_lake


@pytest.fixture(scope="module")
def pods(tmp_path_factory: pytest.TempPathFactory) -> PodList:
    with Lake(tiny_lake(tmp_path_factory.mktemp("runs"), "default")) as lake:
        return pod_list(lake, "openb", "default")


def test_a_pod_list_has_machines_by_name_and_every_pod(pods: PodList) -> None:
    assert [machine.name for machine in pods.machines] == ["a", "b", "c", "d", "e", "f"]
    assert (pods.capacity_milli, len(pods.pods)) == (28_000, 40)
    assert pods.pods.units[34].tolist() == [8000, 8192, 8000]


def test_arms_differ_only_where_they_can() -> None:
    arms = arms_of(None, (0.95, 1.0), ("first", "random"))

    counts = {policy: sum(arm.policy == policy for arm in arms) for policy in POLICIES}
    assert counts == {**dict.fromkeys(POLICIES, 2), "random": 1, "fgd": 4}
    assert {arm.popularity for arm in arms if arm.policy != "fgd"} == {0.95}
    assert arms_of(["fgd", "fgd"], (1.0, 1.0), ("first",)) == (Arm(policy="fgd", popularity=1.0),)


@pytest.mark.parametrize(
    ("policies", "popularity", "ties", "said"),
    [
        (["packing"], 1.0, "first", "no placement 'packing'; expected random, dot_product"),
        (None, 1.0, "name", "no tie rule 'name'; expected first, random"),
        (None, 0.0, "first", "popularity 0, expected a share"),
        (None, 1.5, "first", "popularity 1.5, expected a share"),
    ],
)
def test_arms_that_cannot_be_meant_are_refused(
    policies: list[str] | None, popularity: float, ties: str, said: str
) -> None:
    with pytest.raises(BadUsage, match=said):
        arms_of(policies, [popularity], [ties])


def test_one_arm_of_each_placement_is_picked_by_what_it_looks_at() -> None:
    arms = arms_of(None, (0.95, 1.0), ("first", "random"))
    rows = pl.DataFrame([arm.columns for arm in arms], infer_schema_length=None)

    published = rows.filter(is_arm(0.95))

    assert published["policy"].to_list() == list(POLICIES)
    assert rows.filter(is_arm(1.0, "random"))["policy"].to_list() == list(POLICIES)


def test_a_curve_has_a_row_for_each_percent_at_which_pods_arrived() -> None:
    filled = Inflation(
        capacity_milli=100_000,
        arrived_milli=np.array([1000, 1400, 1600, 5000]),
        used_milli=np.array([1000, 1400, 1400, 4800]),
        fragmentation=np.array([10_000.0, 20_000.0, 20_000.0, 30_000.0]),
        node=np.array([0, 0, -1, 1]),
        taken=np.zeros((4, 8), dtype=np.bool_),
    )

    curve = curve_of(filled, {"workload": "w", **Arm(policy="fgd", popularity=1.0).columns, "seed": 7})

    assert dict(curve.schema) == CURVE_SCHEMA
    values = curve.select("arrived_pct", "unallocated_pct", "fragmented_pct").rows()
    assert values == [pytest.approx(row) for row in [(1, 98.8, 15.0), (2, 98.6, 20.0), (5, 95.2, 30.0)]]
    assert curve["seed"].to_list() == [7, 7, 7]


def test_all_arms_see_the_same_arrivals_and_seeds_differ(pods: PodList) -> None:
    arms = arms_of(None, (1.0,), ("first",))

    frame = filled_up([pods], arms, (1, 2)).frame

    arrivals = frame.group_by("policy", "seed").agg("arrived_pct")
    assert arrivals.height == 2 * len(POLICIES)
    by_seed = arrivals.group_by("seed").agg(pl.col("arrived_pct").n_unique(), first=pl.col("arrived_pct").first())
    assert by_seed["arrived_pct"].to_list() == [1, 1]
    assert by_seed["first"].to_list()[0] != by_seed["first"].to_list()[1]
    assert frame["unallocated_pct"].is_between(0.0, 100.0).all()
    assert (frame["fragmented_pct"] <= frame["unallocated_pct"] + 1e-9).all()


@pytest.mark.slow
def test_two_processes_give_the_same_curves_as_one(pods: PodList) -> None:
    arms = arms_of(None, (0.95, 1.0), ("first", "random"))
    told: list[str] = []

    alone = filled_up([pods], arms, range(42, 45))
    dealt = filled_up([pods], arms, range(42, 45), engine=Processes(2), talk=told.append)

    assert alone.frame.equals(dealt.frame)
    assert {policy: len(took) for policy, took in dealt.seconds.items()} == {
        **dict.fromkeys(POLICIES, 6),
        "random": 3,
        "fgd": 12,
    }
    assert told == ["default: 13 arms, 3 seeds"]
