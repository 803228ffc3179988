"""Tables and downloads: what is quoted for spreadsheets, what may break on paper, and what a link says it saves."""

import csv
import io
import re
from importlib.resources import files

import polars as pl
import pytest
import vl_convert

from pipelines.report.page import csv_of
from pipelines.report.parts import Section
from tests.pipelines.report.tiny import block, figures, tables

NOTICES = files("pipelines.report").joinpath("notices.txt").read_text(encoding="utf-8")


@pytest.mark.parametrize("text", ["=cmd|' /C calc'!A0", "+1", "-1", "@SUM(A1)", "\tx", "\rx"])
def test_a_text_that_a_spreadsheet_would_run_is_quoted_in_downloads(text: str) -> None:
    [row] = csv.DictReader(io.StringIO(csv_of(pl.DataFrame({"user": [text], "x": [-1.5]})), newline=""))

    assert row == {"user": f"'{text}", "x": "-1.5"}


@pytest.mark.slow
def test_every_link_says_of_what_it_saves_the_data(made: list[Section], html: str) -> None:
    labels = re.findall(r'<a class="download" aria-label="([^"]*)"', html)

    assert len(labels) == len(figures(made)) + len(tables(made))
    assert len(set(labels)) == len(labels)
    assert "data (CSV): Status, share of jobs" in labels
    assert "table (CSV): The traces" in labels
    assert 'aria-label="table (CSV): &lt;b&gt;"' in block(pl.DataFrame({"x": [1]}), title="<b>")


def test_only_cells_of_files_and_digests_may_be_broken_on_paper() -> None:
    html = block(pl.DataFrame({"trace": ["t"], "file": ["a/b.csv"], "sha256": ["00ff"], "rows": [1234]}))

    assert re.findall(r'<td class="(\w+)">', html) == ["long", "long", "number"]
    paper = files("pipelines.report").joinpath("page.css").read_text(encoding="utf-8").partition("@media print")[2]
    assert re.search(r"\.number, thead th \{ white-space: nowrap; \}", paper)
    assert [rule for rule in paper.splitlines() if "overflow-wrap: anywhere" in rule] == [
        "  .long { overflow-wrap: anywhere; }"
    ]


def test_notices_are_of_the_library_that_is_embedded() -> None:
    # Another version may embed other programs: see what it is made of, and write pipelines/report/notices.txt anew.
    assert f"vl-convert {vl_convert.__version__} " in NOTICES
    for name, version in (
        ("vega", vl_convert.get_vega_version()),
        ("vega-embed", vl_convert.get_vega_embed_version()),
        ("vega-themes", vl_convert.get_vega_themes_version()),
        ("vega-lite", vl_convert.get_vegalite_versions()[-1]),
    ):
        assert f"{name} {version}" in NOTICES


def test_every_page_holds_the_notices_whole_and_closed(html: str) -> None:
    shown = html.partition('<details class="notices">')[2].partition("</details>")[0]

    for said in (
        "Copyright (c) 2015-2023, University of Washington Interactive Data Lab",
        "Redistributions in binary form must reproduce the above copyright notice",
        "Mike Bostock", "Robert Penner", "Charles Karney", "Ricky Reusser", "Joachim Wester", "Isaac Z. Schlueter",
        "Cynthia Brewer", "END OF TERMS AND CONDITIONS", "unencumbered software",
    ):  # fmt: skip
        assert said in shown
    assert "<details open" not in html
