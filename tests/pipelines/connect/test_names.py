"""Groups of recurring jobs: what changes from run to run in a name becomes `#`, and a site's own patterns."""

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pipelines.connect.names import VARIABLE, normalised
from pipelines.connect.slurm.submission import group_of
from pipelines.errors import BadUsage

GROUPS = {
    "etl-17": "etl-#",
    "snakejob.align.17.sh": "snakejob.align.#.sh",
    "nf-BWA_(s12)": "nf-BWA_(s#)",
    "dump_2026-11-28": "dump_#",
    "dump_20261128": "dump_#",
    "web-5d8f7c9b6d": "web-#",
    "train-x7k2p": "train-#",
    "train-bcdfg": "train-#",
    "run_1b9d6bcd-bbfd-4b2d-9b5d-ab8dfbbd4bed": "run_#",
    "sample_SRR1734": "sample_SRR#",
    "a1b2c3d": "#",
    "deadbeef": "deadbeef",
    "v1.2.3": "v#",
    "17": "#",
    "-": "-",
}
NAMES = tuple(GROUPS)
names = st.lists(st.one_of(st.sampled_from(NAMES), st.text(max_size=9), st.text("a0f-_.#\n")), max_size=4).map("".join)


@pytest.mark.parametrize("name", NAMES)
def test_what_changes_from_run_to_run_is_left_out(name: str) -> None:
    assert normalised(name) == GROUPS[name]


@given(names)
def test_a_group_is_its_own_group_and_never_empty(name: str) -> None:
    once = normalised(name)

    assert normalised(once) == once
    assert bool(once) is bool(name)


@given(st.from_regex(r"[a-z]{1,8}", fullmatch=True), names.filter(bool), st.integers(1, 99), st.integers(1, 99))
def test_neither_users_nor_numbers_of_tasks_share_a_group(user: str, name: str, one: int, other: int) -> None:
    assert (group_of(user, name, one) == group_of(user, name, other)) is (one == other)
    assert group_of(user, name) != group_of(f"{user}2", name)


@pytest.mark.parametrize(("patterns", "group"), [("-tumou?r$\n[0-9]+\n", "s##"), ("", "s12-tumor"), ("x", "s12-tumor")])
def test_a_sites_own_patterns_take_the_place_of_the_usual_ones(
    patterns: str, group: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "names").write_text(patterns)
    monkeypatch.setenv(VARIABLE, str(tmp_path / "names"))

    assert normalised("s12-tumor") == group


@pytest.mark.parametrize(
    ("patterns", "message"),
    [
        ("(", "expected a file of regular"),
        ("a{4294967296}", "expected a file of regular"),
        ("x*", "matches the empty text"),
        (r"\b", "matches the empty text"),
        ("(a+)+b", "can take forever"),
        ("(a|aa)*b", "can take forever"),
        (".*.*.*.*.*b", "can take forever"),
        ("[0-9]+\n" * 10_000, "more than 65536 characters"),
    ],
)
def test_wrong_patterns_are_refused(
    patterns: str, message: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "names").write_text(patterns)
    monkeypatch.setenv(VARIABLE, str(tmp_path / "names"))

    with pytest.raises(BadUsage, match=message):
        normalised("train")
