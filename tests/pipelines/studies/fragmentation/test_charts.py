"""Charts of inflation: a panel per workload, the published dashed, one colour a placement, and sources told apart."""

from typing import Any

import polars as pl

from pipelines.studies.fragmentation.arms import POLICIES
from pipelines.studies.fragmentation.charts import (
    NAMES,
    OURS,
    OURS_BY_NAME,
    PUBLISHED,
    SOURCES,
    fragmented_over_arrived,
    spread,
    unallocated_over_arrived,
)

WORKLOADS = ("gpuspec33", "default")
OF = ["of ten seeds"]


def curves() -> pl.DataFrame:
    return pl.DataFrame(
        [
            {
                "workload": workload,
                "policy": policy,
                "source": source,
                "arrived_pct": arrived,
                "unallocated_pct": 100.0 - arrived,
                "fragmented_pct": 5.0,
            }
            for workload in WORKLOADS
            for policy in ("fgd", "random")
            for source in (OURS, PUBLISHED)
            for arrived in (0, 79, 80, 100)
        ]
    )


def rows(*sources: str) -> pl.DataFrame:
    return pl.DataFrame(
        [
            {"workload": "default", "policy": policy, "variant": variant, "source": source, "mean": 5.0, "sd": 1.0}
            for policy, variant in (("random", ""), ("fgd", ""), ("fgd", ", random ties"))
            for source in sources
        ]
    )


def values(spec: dict[str, Any]) -> list[dict[str, Any]]:
    [found] = spec["datasets"].values()
    return list(found)


def test_every_placement_has_a_name() -> None:
    assert list(NAMES) == list(POLICIES)


def test_unallocated_is_drawn_from_where_placements_part_with_the_published_dashed() -> None:
    spec = unallocated_over_arrived(curves(), WORKLOADS, OF).to_dict()

    assert {row["arrived_pct"] for row in values(spec)} == {80, 100}
    encoding = spec["spec"]["encoding"]
    assert encoding["x"]["title"] == "GPUs asked for, % of all"
    assert encoding["y"]["title"] == "GPUs unallocated, %"
    assert encoding["color"]["scale"]["domain"] == ["random", "FGD"]
    assert encoding["strokeDash"]["scale"]["domain"] == [OURS, PUBLISHED]
    assert spec["facet"]["sort"] == list(WORKLOADS)
    assert spec["title"]["subtitle"] == OF


def test_fragmentation_is_drawn_from_the_empty_cluster_on() -> None:
    spec = fragmented_over_arrived(curves(), WORKLOADS, OF).to_dict()

    assert {row["arrived_pct"] for row in values(spec)} == {0, 79, 80, 100}
    assert spec["spec"]["encoding"]["y"]["title"] == "GPUs fragmented, %"


def test_without_published_curves_no_legend_tells_of_them() -> None:
    encoding = unallocated_over_arrived(curves().filter(source=OURS), WORKLOADS, OF).to_dict()["spec"]["encoding"]

    assert encoding["strokeDash"]["scale"]["domain"] == [OURS]
    assert encoding["strokeDash"]["legend"] is None


def test_the_spread_has_a_line_for_each_variant_and_a_colour_for_each_source() -> None:
    spec = spread(rows(OURS, PUBLISHED), WORKLOADS, OF).to_dict()

    [_, points] = spec["spec"]["layer"]
    assert points["encoding"]["y"]["sort"] == ["random", "FGD", "FGD, random ties"]
    assert points["encoding"]["color"]["scale"] == {
        "domain": [OURS, PUBLISHED],
        "range": [SOURCES[OURS], SOURCES[PUBLISHED]],
    }
    assert {(row["low"], row["high"]) for row in values(spec)} == {(4.0, 6.0)}


def test_nodes_by_name_stand_between_ours_and_the_published() -> None:
    spec = spread(rows(PUBLISHED, OURS_BY_NAME, OURS), WORKLOADS, OF).to_dict()

    assert spec["spec"]["layer"][1]["encoding"]["yOffset"]["sort"] == [OURS, OURS_BY_NAME, PUBLISHED]
