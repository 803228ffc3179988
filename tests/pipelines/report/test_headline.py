"""The opening of the report: figures of the over-claim, groups with what to ask instead, and a simulated gain."""

import re

import polars as pl

from pipelines.lake.lake import Lake
from pipelines.report.claims import price_of
from pipelines.report.headline import headline
from pipelines.report.models import readable
from pipelines.report.parts import Note, Section, Table, Traces


def test_the_report_opens_with_what_was_claimed_and_not_used(made: list[Section]) -> None:
    opening = made[0]
    assert opening.name == "headline"
    claimed, reclaimed = opening.intro.splitlines()
    money = re.search(r"worth ([\d,]+) EUR at 2 EUR an hour", claimed)
    unused = re.search(r"claimed, ([\d,]+) ", claimed)
    assert money is not None
    assert unused is not None
    assert abs(2 * float(unused[1].replace(",", "")) - float(money[1].replace(",", ""))) <= 2.0
    assert re.search(r"\d+ jobs would have finished in 12 h on 32 GPUs instead of \d+", reclaimed)


def test_the_groups_to_fix_first_come_with_what_to_ask_instead(made: list[Section]) -> None:
    [table] = [part for part in made[0].parts if isinstance(part, Table)]
    assert 0 < table.rows.height <= 10
    assert table.rows.filter(pl.col("asks for") == pl.col("ask instead")).height < table.rows.height
    assert table.rows["ask instead"].str.contains("cores?, .* GiB, .* GPUs?$").all()
    freed = table.rows["GPU-hours freed"].to_list()
    assert freed == sorted(freed, reverse=True)
    assert min(freed) >= 0


def test_a_trace_without_measured_use_says_so(lake: Lake) -> None:
    section = headline(Traces(lake=lake, names=("bare",)), price_of("2 EUR"))
    assert section.intro == "No trace measures the use of its jobs."
    [note] = section.parts
    assert isinstance(note, Note)
    assert "bare measures no use" in note.text


def test_features_have_names_in_words() -> None:
    assert readable("user_run_s_p90_20") == "user: p90 run time, last 20"
    assert readable("vc_gpus_burst300_before") == "same VC and GPUs: jobs within 300 s: before"
    assert readable("unknown_thing") == "unknown thing"
