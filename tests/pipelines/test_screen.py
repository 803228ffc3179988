"""Tables on terminals: no line is wider than the screen, what is left out is said, and elsewhere nothing changes."""

import io
from collections.abc import Mapping, Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.cells import cell_len

from pipelines.render import render

Rows = Sequence[Mapping[str, object]]


class Terminal(io.StringIO):
    """A stream that says it is a screen."""

    def isatty(self) -> bool:
        return True


def shown(rows: Rows, width: int, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    monkeypatch.setenv("COLUMNS", str(width))
    stream = Terminal()
    render(rows, "table", stream=stream)
    return stream.getvalue().splitlines()


def piped(rows: Rows) -> list[str]:
    stream = io.StringIO()
    render(rows, "table", stream=stream)
    return stream.getvalue().splitlines()


ARMS = [
    {"trace": "pai", "arm": arm, "deployed": 500 + at, "completed": 480 + at, "killed": 0, "jct_mean_s": 3600.5 + at}
    for at, arm in enumerate(["requested", "shrunk", "oracle"] * 4)
]


@pytest.mark.parametrize("width", [57, 58, 200])
def test_what_fits_is_shown_as_it_is_piped(monkeypatch: pytest.MonkeyPatch, width: int) -> None:
    assert max(map(len, piped(ARMS))) == 57
    assert shown(ARMS, width, monkeypatch) == piped(ARMS)


def test_a_pipe_gets_every_column_whatever_the_width(monkeypatch: pytest.MonkeyPatch) -> None:
    wide = piped(ARMS)
    monkeypatch.setenv("COLUMNS", "10")

    assert piped(ARMS) == wide


def test_few_rows_are_turned_over(monkeypatch: pytest.MonkeyPatch) -> None:
    assert shown(ARMS[:2], 40, monkeypatch) == [
        "trace             pai     pai",
        "-----------------------------",
        "arm         requested  shrunk",
        "deployed          500     501",
        "completed         480     481",
        "killed              0       0",
        "jct_mean_s     3600.5  3601.5",
    ]


def test_many_rows_say_once_what_is_the_same_and_leave_the_last_columns_out(monkeypatch: pytest.MonkeyPatch) -> None:
    lines = shown(ARMS, 35, monkeypatch)

    assert lines[:4] == [
        "in all rows trace: pai, killed: 0",
        "arm        deployed  completed",
        "------------------------------",
        "requested       500        480",
    ]
    assert " ".join(lines[-2:]) == "columns not shown: 1; --format json shows all"
    assert len(lines) == 1 + 2 + len(ARMS) + 2


def test_rows_that_are_all_the_same_are_still_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    lines = shown([{"arm": "requested", "truth": "contention"}] * 9, 20, monkeypatch)

    assert lines.count("requested") == 9


CELLS = st.none() | st.integers(-(10**6), 10**6) | st.text("ab é漢 ", max_size=12)
TABLES = st.integers(1, 9).flatmap(
    lambda count: st.lists(
        st.lists(CELLS, min_size=count, max_size=count).map(lambda row: {f"c{at}": v for at, v in enumerate(row)}),
        min_size=1,
        max_size=8,
    )
)


@given(rows=TABLES, width=st.integers(30, 90))
def test_no_line_is_wider_than_the_screen_and_no_row_is_lost(rows: Rows, width: int) -> None:
    with pytest.MonkeyPatch.context() as patch:
        lines = shown(rows, width, patch)

    assert max(map(cell_len, lines)) <= width
    assert len([line for line in lines if set(line) == {"-"} and cell_len(line) > 1]) >= 1
    assert len(lines) >= min(len(rows), len(rows[0])) + 1


def test_rows_are_coloured_on_a_screen_only(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    monkeypatch.delenv("NO_COLOR", raising=False)
    rows = [{"severity": "high" if row["arm"] == "shrunk" else None, **row} for row in ARMS]
    screen, pipe = Terminal(), io.StringIO()
    for stream in (screen, pipe):
        render(rows, "table", stream=stream)
    coloured = [line for line in screen.getvalue().splitlines() if "\x1b[31m" in line]
    assert len(coloured) == 4
    assert all("shrunk" in line for line in coloured)
    assert "\x1b" not in pipe.getvalue()
    monkeypatch.setenv("NO_COLOR", "1")
    plain = Terminal()
    render(rows, "table", stream=plain)
    assert plain.getvalue() == pipe.getvalue()
