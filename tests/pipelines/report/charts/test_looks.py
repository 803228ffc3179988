"""The readable type that charts of experiments are given: all of it, none undone by what follows."""

import altair as alt
import polars as pl

from pipelines.report.charts.panels import titled


def test_a_titled_chart_keeps_all_that_it_was_given() -> None:
    rows = pl.DataFrame({"at": [1, 2], "part": ["x", "y"]})
    chart = alt.Chart(rows).mark_point().encode(x="at:Q").facet("part:N")

    spec = titled(chart, "Title", ["of two"]).to_dict()

    assert spec["title"]["subtitle"] == ["of two"]
    config = spec["config"]
    assert config["font"] == "sans-serif"
    assert config["axis"]["titleFontWeight"] == "normal"
    assert config["axis"]["labelFlush"] is False
    assert config["header"]["labelFontWeight"] == "bold"
    assert config["legend"]["labelLimit"] == 300
    assert config["view"]["stroke"] == "#cccccc"
