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
    monkeypatch.delenv("COLUMNS", raising=False)
    whole = piped(ARMS)
    assert max(map(len, whole)) == 57
    assert shown(ARMS, width, monkeypatch) == whole


def test_a_pipe_gets_every_column_unless_a_width_is_set(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("COLUMNS", raising=False)
    whole = piped(ARMS)
    for unusable in ("", "0", "-3", "wide"):
        monkeypatch.setenv("COLUMNS", unusable)
        assert piped(ARMS) == whole

    monkeypatch.setenv("COLUMNS", "35")

    assert piped(ARMS) == shown(ARMS, 35, monkeypatch)


LONG = [{"model": f"model {at}", "detail": "x" * 300 if at == 2 else "ok", "rows": 100 + at} for at in range(4)]


def test_a_long_text_is_shortened_and_every_column_stays(monkeypatch: pytest.MonkeyPatch) -> None:
    lines = shown(LONG, 60, monkeypatch)

    assert lines[0].split() == ["model", "detail", "rows"]
    assert lines[4].split() == ["model", "2", "x" * 44 + "…", "102"]
    assert lines[5].split() == ["model", "3", "ok", "103"]
    assert lines[-1] == "texts that end in … are longer; --format json shows all"
    assert max(map(cell_len, lines)) == 60


def test_columns_are_left_out_only_where_short_texts_do_not_fit(monkeypatch: pytest.MonkeyPatch) -> None:
    lines = shown(LONG, 30, monkeypatch)

    assert lines[0].split() == ["model"]
    assert " ".join(lines[6:]) == "columns not shown: 2; --format json shows all"


def test_one_row_with_a_long_text_is_turned_over(monkeypatch: pytest.MonkeyPatch) -> None:
    row = {f"column {at}": at for at in range(20)} | {"detail": "漢" * 200}

    lines = shown([row], 80, monkeypatch)

    assert len(lines) == 1 + 21 + 1
    assert lines[21].split() == ["detail", "漢" * 34 + "…"]


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


TEXTS = st.text("ab é漢 ", max_size=12) | st.text("ab é漢 ", min_size=30, max_size=90)
CELLS = st.none() | st.integers(-(10**6), 10**6) | TEXTS
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
