"""Progress: bars with rate and time left on a terminal, at most a line elsewhere, also where code is compiled."""

import io

import numba
import pytest
from rich.console import Console

from pipelines.cli import progress
from pipelines.cli.progress import COMPILING, byte_progress, compiling, watched


@pytest.fixture
def screen(monkeypatch: pytest.MonkeyPatch) -> io.StringIO:
    stream = io.StringIO()
    console = Console(file=stream, force_terminal=True, width=120, _environ={})
    monkeypatch.setattr(progress, "Console", lambda **_: console)
    return stream


def test_watched_names_show_the_time_left(screen: io.StringIO) -> None:
    assert list(watched("training")(["ctr", "nlp"])) == ["ctr", "nlp"]
    assert "training nlp" in screen.getvalue()
    assert "2/2" in screen.getvalue()
    assert "0:00:00" in screen.getvalue()


def test_reading_shows_bytes(screen: io.StringIO) -> None:
    with byte_progress("reading raw") as report:
        report("reading jobs of Venus", 500_000, 1_000_000)
        report("writing jobs of Venus", 1_000_000, 1_000_000)
    assert "writing jobs of Venus" in screen.getvalue()
    assert "1.0/1.0 MB" in screen.getvalue()


def test_a_pipe_gets_at_most_a_line(capsys: pytest.CaptureFixture[str]) -> None:
    assert list(watched("training")(["ctr"])) == ["ctr"]
    with byte_progress("reading raw") as report:
        report("reading jobs of Venus", 1, 2)
    assert capsys.readouterr().err == "reading raw\n"


def test_one_line_however_much_is_compiled(capsys: pytest.CaptureFixture[str]) -> None:
    more, less = numba.njit(lambda x: x + 1), numba.njit(lambda x: x - 1)

    with compiling():
        more(1)
        less(1)

    assert capsys.readouterr().err == f"{COMPILING}\n"
