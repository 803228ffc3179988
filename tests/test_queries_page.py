"""The page of worked queries: each runs, and gives the answer shown, in a plain DuckDB and in `taut sql` alike."""

import re
import shlex
from pathlib import Path

import pytest
import typer

from pipelines.cli import app
from pipelines.lake.lake import Lake
from tests.pipelines.statistics.lakes import T0, make_lake, ran, used
from tests.query_examples import PAGE, SETTING_UP, Example, answered_by_duckdb, answered_by_taut, examples, set_up

TEXT = PAGE.read_text(encoding="utf-8")
EXAMPLES = tuple(examples(TEXT))


@pytest.fixture(scope="module")
def toy(tmp_path_factory: pytest.TempPathFactory) -> Lake:
    """Return a lake in which every query finds a row, save that of the quarantine."""
    folder = tmp_path_factory.mktemp("queries")
    claimed = {"user": "u", "group": "g", "gpu_type": "T4", "req_cpu_cores": 6.0, "req_mem_gib": 9.0, "req_gpus": 1.0}
    measured = {"used_cpu_cores": 2.0, "used_gpus": 0.2, "mem_max_gib": 4.0, "gpu_mem_max_gib": 9.0}
    here = {"trace": "toy", "cluster": "c"}
    tables = {
        "jobs": [ran(at, 1800.0 * (at + 1), **claimed) for at in range(5)],
        "usage": [used(at, **measured) for at in range(5)],
        "machines": [here | {"machine": "m", "gpu_type": "T4", "gpus": 2}],
        "machine_usage": [here | {"machine": "m", "ts": T0, "gpu_frac": 0.5}],
    }
    lake = make_lake(folder, tables)
    with lake:
        lake.connect()
    return lake


def headings(answer: str) -> list[str]:
    return re.split(r" {2,}", answer.partition("\n")[0].strip())


def test_the_page_has_queries_with_answers() -> None:
    assert len(EXAMPLES) >= 10
    assert all(each.answer for each in EXAMPLES)
    assert TEXT.count("```sql") == len(EXAMPLES)


@pytest.mark.parametrize("example", EXAMPLES, ids=lambda example: headings(example.answer)[-1])
def test_every_query_answers_with_the_columns_shown(toy: Lake, example: Example) -> None:
    found = answered_by_duckdb(toy, example.query)

    assert headings(found) == headings(example.answer)
    # The small lake has nothing in quarantine; every other question has an answer in it.
    assert (found.count("\n") > 2) == ("FROM quarantine" not in example.query)


@pytest.mark.parametrize("command", re.findall(r"^taut .*$", "".join(SETTING_UP.findall(TEXT)), re.MULTILINE))
def test_shown_commands_exist_with_their_options(command: str) -> None:
    known = {name: each.params for name, each in typer.main.get_group(app).commands.items()}
    _, name, *words = shlex.split(command)

    options = {option for parameter in known[name] for option in parameter.opts}
    assert {word for word in words if word.startswith("--")} <= options


@pytest.mark.slow
def test_every_answer_is_the_one_shown(tmp_path: Path) -> None:
    lake = set_up(TEXT, tmp_path)

    wrong = []
    for example in EXAMPLES:
        found = {answered_by_duckdb(lake, example.query)}
        found |= {answered_by_taut(lake, example.query)} if example.sealed else set()
        wrong += [f"{example.query}\nshown:\n{example.answer}\nfound:\n{each}" for each in found - {example.answer}]

    assert wrong == [], "write the answers anew with `python -m tests.query_examples`"
