"""The page: whole, self-contained, the same each time; what a trace names can neither break nor run in it."""

import csv
import io
import json
import re
from base64 import b64decode, b64encode
from hashlib import sha256
from html import unescape
from html.parser import HTMLParser
from pathlib import Path

import pytest

from pipelines.errors import BadUsage, LakeError
from pipelines.lake.lake import Lake
from pipelines.report.claims import claims, price_of
from pipelines.report.overview import people
from pipelines.report.page import csv_of, page, shown
from pipelines.report.parts import Section, Table, Traces, shortened
from pipelines.report.report import MOST_TRACES, SECTIONS, Order, chosen, report
from tests.pipelines.report.tiny import ATTACK, frame, tables
from tests.pipelines.statistics.lakes import make_lake, ran


class Reader(HTMLParser):
    """Keeps the tags with their attributes, and the text of scripts and cells."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.scripts: list[tuple[dict[str, str | None], str]] = []
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))

    def handle_data(self, data: str) -> None:
        if self.tags and self.tags[-1][0] == "script" and data.strip():
            self.scripts.append((self.tags[-1][1], data))

    def of(self, tag: str) -> list[dict[str, str | None]]:
        return [attributes for name, attributes in self.tags if name == tag]


def policy_of(html: str) -> str:
    meta = [each for each in Reader(html).of("meta") if each.get("http-equiv") == "Content-Security-Policy"]
    return str(meta[0]["content"])


def test_the_page_has_its_sections_in_order_and_a_link_to_each(html: str) -> None:
    read = Reader(html)

    wanted = [name for name in SECTIONS if name not in ("energy", "environment", "models")]
    assert [each["id"] for each in read.of("section")] == wanted
    assert [each["href"] for each in read.of("a")][: len(wanted)] == [f"#{name}" for name in wanted]


def test_nothing_is_asked_of_a_network(html: str) -> None:
    read = Reader(html)

    addresses = [each[name] or "" for _, each in read.tags for name in ("src", "href") if name in each]
    assert all(address.startswith(("#", "data:")) for address in addresses)
    assert not read.of("link")
    assert "jsdelivr" not in html
    assert "unpkg" not in html
    outside = html.partition('<script type="application/json"')[0]
    assert not re.search(r"https?://", outside)
    assert "@import" not in outside
    assert "url(" not in outside


def test_the_policy_allows_the_two_scripts_and_no_connection(html: str) -> None:
    policy = policy_of(html)
    programs = [text for attributes, text in Reader(html).scripts if "type" not in attributes]

    hashes = [f"'sha256-{b64encode(sha256(text.encode()).digest()).decode()}'" for text in programs]
    assert len(hashes) == 2
    assert f"script-src {' '.join(hashes)};" in policy
    assert policy.startswith("default-src 'none'")
    assert "connect-src" not in policy
    assert "unsafe-eval" not in policy
    assert "unsafe-inline" not in policy.partition("style-src")[0]


def test_every_place_of_a_chart_has_its_specification(html: str) -> None:
    read = Reader(html)

    [specs] = [json.loads(text) for attributes, text in read.scripts if attributes.get("type") == "application/json"]
    places = [each["data-chart"] for each in read.of("div") if "data-chart" in each]
    assert places
    assert sorted(places) == sorted(specs)
    assert not [name for name, spec in specs.items() if "$schema" in spec]


def test_what_a_trace_names_is_text_and_no_markup(html: str) -> None:
    read = Reader(html)

    assert ATTACK not in html
    assert not read.of("img")
    assert not read.of("b")
    assert "<title>Claims &amp; &lt;use&gt;</title>" in html
    [specs] = [text for attributes, text in read.scripts if attributes.get("type") == "application/json"]
    assert "<" not in specs


@pytest.mark.slow
def test_the_same_lake_gives_the_same_bytes(lake: Lake, order: Order, html: str) -> None:
    assert report(lake, ("toy", "bare"), order) == html


def test_downloads_hold_what_the_tables_show(made: list[Section], html: str) -> None:
    links = {each["download"]: str(each["href"]) for each in Reader(html).of("a") if "download" in each}

    for name, each in tables(made).items():
        text = b64decode(links[f"{name}.csv"].partition("base64,")[2]).decode()
        assert text == csv_of(each.rows)
        assert len(list(csv.DictReader(io.StringIO(text)))) == each.rows.height
        block = html[html.index(f'id="table-{name}"') :].partition("</table>")[0]
        cells = [unescape(cell) for cell in re.findall(r"<t[hd][^>]*>([^<]*)</t[hd]>", block)]
        wanted = [shown(value, column) for column in each.rows.columns for value in each.rows[column]]
        assert sorted(cells) == sorted([*wanted, *each.rows.columns] if not each.upright else _upright(each, wanted))


def _upright(each: Table, wanted: list[str]) -> list[str]:
    """Return the cells of an upright table: the first column heads it, its own name gives way to an empty corner."""
    return ["", *each.rows.columns[1:], *wanted]


def test_what_a_trace_does_not_tell_is_said_with_the_reason(html: str) -> None:
    assert "bare: request above use not available; jobs.req_gpus is null in all 5 rows of bare" in html
    assert "bare: utilisation by local hour not available" in html


def test_money_is_gpu_slack_times_the_price_and_only_where_one_is_stated(lake: Lake, made: list[Section]) -> None:
    priced = tables(made)["slack_by_kind"].rows
    traces = Traces(lake=lake, names=("toy",))
    free = tables([claims(traces, None), people(traces, None)])

    assert (priced["slack (EUR)"] - 2.0 * priced["slack_h"]).abs().max() < 1e-9  # type: ignore[operator]
    assert not [name for each in free.values() for name in each.rows.columns if "(" in name]


def test_users_of_one_name_in_two_clusters_are_two(tmp_path: Path) -> None:
    jobs = [ran(at, 3600.0, cluster=f"c{at % 2}", user="ann", req_gpus=1.0) for at in range(4)]
    with make_lake(tmp_path, {"jobs": jobs}) as lake:
        made = people(Traces(lake=lake, names=("toy",)), None)

    rows = tables([made])["gpu_hours-by-user"].rows
    assert rows.select("cluster", "user").rows() == [("c0", "ann"), ("c1", "ann")]


@pytest.mark.parametrize(
    ("names", "short"),
    [
        (["0123456789abcdef", "0123456789abcdeg"], ["0123456789abcdef", "0123456789abcdeg"]),
        (["0123456789abcdefXXXX", "1123456789abcdefXXXX"], ["01234567…", "11234567…"]),
        (["ann", None], ["ann", None]),
        (["a\u202eb", "a\nb"], ["a\\u202eb", "a\\nb"]),
    ],
)
def test_names_are_cut_to_what_tells_them_apart(names: list[str | None], short: list[str | None]) -> None:
    assert shortened(names) == short


def test_a_table_beyond_what_a_page_holds_says_so_and_its_download_is_whole() -> None:
    rows = frame(*({"trace": "t", "value": i} for i in range(500)))
    part = Table(name="long", title="Long", rows=rows)

    html = page("t", "s", [Section(name="s", title="S", intro="i", parts=(part,))])

    assert "The first 400 of 500 rows." in html
    assert html.count('<th scope="row">') == 400
    [link] = [str(each["href"]) for each in Reader(html).of("a") if "download" in each]
    assert b64decode(link.partition("base64,")[2]).decode().count("\n") == 501


@pytest.mark.parametrize(
    "text", ["", "2", "USD", "0 USD", "-1 USD", "nan USD", "inf USD", "1e300 USD", "2 " + "x" * 13]
)
def test_a_price_that_cannot_be_meant_is_refused(text: str) -> None:
    with pytest.raises(BadUsage, match="expected"):
        price_of(text)


def test_traces_are_all_of_the_lake_or_those_named_once(lake: Lake) -> None:
    assert chosen(lake, None) == ("bare", "toy")
    assert chosen(lake, ["toy", "toy"]) == ("toy",)
    with pytest.raises(LakeError, match="no trace 'other'"):
        chosen(lake, ["other"])


def test_more_traces_than_colours_are_refused(tmp_path: Path) -> None:
    for i in range(MOST_TRACES + 1):
        lake = make_lake(tmp_path, {"jobs": [ran(0, 1.0)]}, trace=f"t{i}")
    with pytest.raises(BadUsage, match=f"at most {MOST_TRACES}"):
        chosen(lake, None)
