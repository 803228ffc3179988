import csv
import io
import json
from collections.abc import Mapping, Sequence
from datetime import UTC, date, datetime, timedelta, timezone
from decimal import Decimal
from enum import StrEnum
from pathlib import Path

import numpy as np
import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.cells import cell_len

from pipelines.errors import BadUsage
from pipelines.render import render
from pipelines.render.rows import FORMATS


class Colour(StrEnum):
    RED = "red"


def _rendered(rows: Sequence[Mapping[str, object]] | pl.DataFrame, form: str) -> str:
    stream = io.StringIO()
    render(rows, form, stream=stream)
    return stream.getvalue()


MIXED = [
    {"model": "xgboost", "n": 52000, "wmape": 0.97123, "mae_h": 3.0, "wins": True},
    {"model": "median", "n": 3, "wmape": 1.1, "mae_h": float("nan"), "wins": None},
]


def test_a_table_aligns_numbers_right_and_words_left() -> None:
    assert _rendered(MIXED, "table") == (
        "model        n  wmape  mae_h  wins\n"
        "----------------------------------\n"
        "xgboost  52000  0.971      3  true\n"
        "median       3  1.100      -  -\n"
    )


def test_json_is_one_flat_object_a_line() -> None:
    assert _rendered(MIXED, "json") == (
        "[\n"
        '  {"model": "xgboost", "n": 52000, "wmape": 0.97123, "mae_h": 3.0, "wins": true},\n'
        '  {"model": "median", "n": 3, "wmape": 1.1, "mae_h": null, "wins": null}\n'
        "]\n"
    )


def test_csv_keeps_every_digit_and_leaves_null_empty() -> None:
    assert _rendered(MIXED, "csv") == "model,n,wmape,mae_h,wins\nxgboost,52000,0.97123,3.0,true\nmedian,3,1.1,,\n"


@pytest.mark.parametrize("form", FORMATS)
def test_a_frame_and_its_rows_render_alike(form: str) -> None:
    frame = pl.DataFrame(
        {
            "a": [1, None],
            "b": [0.5, 2.25],
            "t": [datetime(2020, 1, 1, tzinfo=UTC), None],
            "nested": [[1, 2], None],
            "sum": [Decimal("45"), Decimal("1.5")],
        }
    )

    assert _rendered(frame, form) == _rendered(frame.to_dicts(), form)


@pytest.mark.parametrize(("form", "text"), [("table", ""), ("json", "[]\n"), ("csv", "")])
def test_no_rows_and_no_columns(form: str, text: str) -> None:
    assert _rendered([], form) == text


@pytest.mark.parametrize(
    ("value", "plain"),
    [
        (datetime(2017, 10, 1, 12, 30), "2017-10-01T12:30:00"),
        (datetime(2017, 10, 1, 12, 30, tzinfo=UTC), "2017-10-01T12:30:00Z"),
        (datetime(2017, 10, 1, 12, 30, 0, 500, tzinfo=timezone(timedelta(hours=8))), "2017-10-01T04:30:00.000500Z"),
        (date(2017, 10, 1), "2017-10-01"),
        (timedelta(minutes=1, milliseconds=500), 60.5),
        (Decimal("3.00"), 3),
        (Decimal("3.25"), 3.25),
        (Decimal("Infinity"), None),
        (Colour.RED, "red"),
        (np.float32(0.5), 0.5),
        (np.int64(7), 7),
        (np.bool_(True), True),
        (Path("data") / "lake", "data/lake"),
        (b"\x00\xff", "00ff"),
        ([1, float("nan"), "é"], '[1, null, "é"]'),
        ({"x": date(2017, 10, 1)}, '{"x": "2017-10-01"}'),
        (float("nan"), None),
        (float("-inf"), None),
        (None, None),
        ("", ""),
    ],
)
def test_values_become_plain_json(value: object, plain: object) -> None:
    (row,) = json.loads(_rendered([{"value": value}], "json"))

    assert row == {"value": plain}
    assert type(row["value"]) is type(plain)


@pytest.mark.parametrize(
    ("values", "shown"),
    [
        ([0.5, 0.25], ["0.50", "0.25"]),
        ([0.123456], ["0.1235"]),
        ([1.0, 2.0], ["1", "2"]),
        ([13040.634, 1.5], ["13040.6", "1.5"]),
        ([99.126, 1.0], ["99.13", "1.00"]),
        ([0.9, 0.00001], ["0.9", "1e-05"]),
        ([-0.0, 0.5], ["0.0", "0.5"]),
        ([float("inf"), 1.5], ["inf", "1.5"]),
        ([None, float("nan"), 2.0], ["-", "-", "2"]),
        ([123456789], ["123456789"]),
        ([True, False], ["true", "false"]),
    ],
)
def test_a_table_rounds_for_reading(values: list[object], shown: list[str]) -> None:
    lines = _rendered([{"value": value} for value in values], "table").splitlines()

    assert [line.strip() for line in lines[2:]] == shown


def test_a_wide_table_keeps_one_line_per_row() -> None:
    rows = [{f"column_{index}": "x" * 50 for index in range(40)}] * 3

    lines = _rendered(rows, "table").splitlines()

    assert len(lines) == 5
    assert all(len(line) > 2000 for line in lines)


def test_wide_characters_keep_the_columns_apart() -> None:
    lines = _rendered([{"name": "中文", "n": 1}, {"name": "abcd", "n": 2}], "table").splitlines()

    assert [cell_len(line) for line in lines] == [7, 7, 7, 7]


def test_a_table_escapes_what_would_move_the_cursor() -> None:
    text = _rendered([{"user": "a\nb\x1b[31m\t[red]"}], "table")

    assert text.splitlines()[2] == r"a\nb\x1b[31m\t[red]"


def test_an_unknown_format_names_the_known_ones() -> None:
    with pytest.raises(BadUsage, match=r"'yaml'.*table, json, csv"):
        _rendered([], "yaml")


cells = st.none() | st.booleans() | st.integers() | st.floats() | st.text(st.characters(exclude_categories=["Cs"]))
tables = st.lists(st.fixed_dictionaries({"a": cells, "b": cells, "c": st.floats()}), min_size=1, max_size=6)


@given(rows=tables)
def test_json_and_csv_lose_no_row_and_a_table_no_line(rows: list[dict[str, object]]) -> None:
    assert len(json.loads(_rendered(rows, "json"))) == len(rows)
    assert len(list(csv.reader(io.StringIO(_rendered(rows, "csv"), newline="")))) == len(rows) + 1
    assert _rendered(rows, "table").count("\n") == len(rows) + 2


def test_rows_of_several_kinds_keep_to_their_own_columns_in_json_alone() -> None:
    rows: list[dict[str, object]] = [{"about": "goal", "met": None}, {"about": "harm", "killed": float("nan")}]
    told, lined_up = io.StringIO(), io.StringIO()

    render(rows, "json", stream=told, kinds=True)
    render(rows, "csv", stream=lined_up, kinds=True)

    assert json.loads(told.getvalue()) == [{"about": "goal", "met": None}, {"about": "harm", "killed": None}]
    assert lined_up.getvalue().splitlines()[0] == "about,met,killed"
