"""Chart of inflation: a panel per workload, the published dashed, one colour a placement."""

from typing import Any

import polars as pl

from pipelines.studies.fragmentation.arms import POLICIES
from pipelines.studies.fragmentation.study import (
    NAMES,
    OURS,
    PUBLISHED,
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
            }
            for workload in WORKLOADS
            for policy in ("fgd", "random")
            for source in (OURS, PUBLISHED)
            for arrived in (0, 79, 80, 100)
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


def test_without_published_curves_no_legend_tells_of_them() -> None:
    encoding = unallocated_over_arrived(curves().filter(source=OURS), WORKLOADS, OF).to_dict()["spec"]["encoding"]

    assert encoding["strokeDash"]["scale"]["domain"] == [OURS]
    assert encoding["strokeDash"]["legend"] is None
