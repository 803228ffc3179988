"""Charts: valid specifications with titles, units and n, the paper's claim as a mark, and one picture drawn."""

import struct
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import polars as pl
import pytest

from pipelines.studies.shrinking.charts import CLAIM, completion_over_load, deployed_over_load
from pipelines.studies.shrinking.study import CHARTS, findings_of
from tests.pipelines.studies.shrinking.tiny import resulted

OKABE_ITO = {"#000000", "#E69F00", "#56B4E9", "#009E73", "#F0E442", "#0072B2", "#D55E00", "#CC79A7"}


def spec(name: str) -> dict[str, Any]:
    drawn: dict[str, Any] = findings_of(resulted("shrinking")).charts[name]().to_dict()
    return drawn


def parts(node: object, key: str) -> Iterator[Any]:
    """Yield everything that stands under a key, however deep."""
    if isinstance(node, dict):
        if key in node:
            yield node[key]
        for value in node.values():
            yield from parts(value, key)
    elif isinstance(node, list):
        for value in node:
            yield from parts(value, key)


@pytest.mark.slow
@pytest.mark.parametrize("name", list(CHARTS))
def test_every_chart_says_what_it_shows_of_what_and_of_how_many(name: str) -> None:
    drawn = spec(name)

    assert drawn["title"]["text"]
    said = " ".join(drawn["title"]["subtitle"])
    for fact in ("40 of toy jobs", "2 seeds", "95 % intervals", "32 GPUs, 384 cores"):
        assert fact in said
    axes = [
        channel for encoding in parts(drawn, "encoding") for name, channel in encoding.items() if name in ("x", "y")
    ]
    assert axes
    # An axis has a title; one that repeats it in a layer, or whose labels are names, may go without.
    assert any(axis.get("title") for axis in axes)


@pytest.mark.parametrize("name", list(CHARTS))
def test_colours_can_be_told_apart_by_everybody(name: str) -> None:
    channels: list[Any] = list(parts(spec(name), "color"))
    scales = [each["scale"] for each in channels if isinstance(each, dict)]
    colours = {colour for scale in scales for colour in scale["range"] if isinstance(colour, str)}

    assert colours
    assert colours <= OKABE_ITO


def claimed(chart: Any) -> pl.DataFrame:
    """Return the rows of a chart's data that are the paper's claim."""
    data = chart.to_dict()["datasets"]
    rows = [row for rows in data.values() for row in rows if row.get("name") == CLAIM]
    return pl.DataFrame(rows)


def levels() -> pl.DataFrame:
    """Return the baseline and one arm at two loads: 200 of 800 jobs, a quarter of the capacity."""
    columns = {"deployed": 200.0, "complete_rate": 0.25}
    return pl.DataFrame(
        [
            {
                "rate_per_h": rate,
                "truth": "contention",
                "arm": arm,
                "gnn": "with",
                "devices": "all",
                **{f"{name}{end}": value for name, value in columns.items() for end in ("", "_lo", "_hi")},
            }
            for rate in (30.0, 70.0)
            for arm in ("requested", "shrunk")
        ]
    )


def test_the_papers_claim_stands_on_top_of_our_baseline_at_its_load() -> None:
    [row] = claimed(deployed_over_load(levels(), ["n"])).rows(named=True)

    assert row["rate_per_h"] == 70.0
    assert row["level"] == row["low"] == row["high"] == pytest.approx(200.0 * 1.253)


def test_a_claim_about_a_share_reaches_from_one_reading_to_the_other() -> None:
    [row] = claimed(completion_over_load(levels(), ["n"])).rows(named=True)

    assert row["level"] == pytest.approx(0.25 * 1.152)
    assert (row["low"], row["high"]) == (pytest.approx(0.25 * 1.152), pytest.approx(0.25 + 0.152))


@pytest.mark.parametrize(
    ("draw", "column", "most"), [(deployed_over_load, "deployed", None), (completion_over_load, "complete_rate", 1.0)]
)
def test_bands_end_where_no_level_can_lie(draw: Any, column: str, most: float | None) -> None:
    wide = levels().with_columns(
        (pl.col(column) - 1000.0).alias(f"{column}_lo"), (pl.col(column) + 1000.0).alias(f"{column}_hi")
    )

    drawn = [row for rows in draw(wide, ["n"]).to_dict()["datasets"].values() for row in rows if row["name"] != CLAIM]

    assert {row["low"] for row in drawn} == {0.0}
    assert {row["high"] for row in drawn} == {most or 1200.0}


def test_a_claim_about_a_share_ends_at_all() -> None:
    nearly = levels().with_columns(complete_rate=pl.lit(0.95))

    [row] = claimed(completion_over_load(nearly, ["n"])).rows(named=True)

    assert (row["level"], row["low"], row["high"]) == (1.0, 1.0, 1.0)


@pytest.mark.parametrize("name", list(CHARTS))
def test_the_legend_shows_the_papers_claim_as_the_diamond_that_is_drawn(name: str) -> None:
    [shape] = [each["scale"] for each in parts(spec(name), "shape") if isinstance(each, dict)]

    by_name = dict(zip(shape["domain"], shape["range"], strict=True))
    assert by_name.pop(CLAIM) == "diamond"
    assert set(by_name.values()) == {"stroke"}


def test_a_chart_is_drawn_without_a_browser_or_a_network(tmp_path: Path) -> None:
    chart: Any = findings_of(resulted("shrinking")).charts["figure4_use"]()

    chart.save(tmp_path / "chart.png")

    content = (tmp_path / "chart.png").read_bytes()
    assert content.startswith(b"\x89PNG")
    width, height = struct.unpack(">II", content[16:24])
    assert width > 500
    assert height > 300
