"""Charts of reclaiming: a panel per mix and sharing, a look per arm, and no chart without a share."""

import math
from typing import Any

from pipelines.studies.reclaim.arms import ARMS
from pipelines.studies.reclaim.charts import LOOKS, drawings
from pipelines.studies.study import Row
from scheduler_core.reserve import ReservePolicy

OF = ["toy: 40 measured jobs"]


def rows(**fields: object) -> list[Row]:
    """Return a row per arm, mix and sharing."""
    return [
        {
            "mix": mix,
            "sharing": sharing,
            "policy": "fifo",
            "variation": "default",
            "z": ReservePolicy().z,
            "probation_s": ReservePolicy().probation_s,
            "arm": arm,
            "share": 0.5,
            "share_lo": 0.4,
            "share_hi": 0.6,
            "killed": int(arm == "p95"),
            "stretch_p99": 1.02,
        }
        | fields
        for arm in ARMS
        for mix in ("gnn", "no-gnn")
        for sharing in ("pooled", "devices")
    ]


def drawn(made: list[Row]) -> dict[str, Any]:
    [chart] = drawings(made, OF).values()
    spec: dict[str, Any] = chart().to_dict()
    return spec


def test_every_arm_but_requested_has_a_name_and_its_own_look() -> None:
    assert set(LOOKS) == set(ARMS) - {"requested"}
    assert len({look[1:] for look in LOOKS.values()}) == len(LOOKS)


def test_gain_is_drawn_against_stretch_in_a_panel_per_mix_and_sharing() -> None:
    spec = drawn(rows())

    assert spec["facet"]["sort"] == [
        "mix without GNN, GPUs pooled",
        "mix without GNN, GPUs by devices",
        "mix with GNN, GPUs pooled",
        "mix with GNN, GPUs by devices",
    ]
    points = spec["spec"]["layer"][-1]["encoding"]
    assert points["color"]["scale"]["domain"] == [name for name, _, _ in LOOKS.values()]
    assert points["y"]["title"] == "share of the oracle's gain in finished jobs"
    assert spec["title"]["subtitle"][:2] == [*OF, "variation default, FIFO"]


def test_only_present_arms_are_in_the_legend() -> None:
    spec = drawn([row for row in rows() if row["arm"] in ("requested", "reclaim", "oracle")])

    domain = spec["spec"]["layer"][-1]["encoding"]["color"]["scale"]["domain"]
    assert domain == ["reclaim", "oracle: mean use at submission"]


def test_there_is_a_chart_per_variation_and_order_and_none_without_a_share() -> None:
    made = [*rows(), *rows(variation="prototype"), *rows(policy="drf"), *rows(variation="constant", share=math.nan)]

    assert list(drawings(made, OF)) == ["reclaim_default_fifo", "reclaim_prototype_fifo", "reclaim_default_drf"]
