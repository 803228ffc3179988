"""A store of the first layout, opened by this release: nothing is lost, whatever happens on the way."""

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from sqlalchemy import inspect, text

from modelserve.store import Store
from modelserve.store.answers import read_answer
from modelserve.store.migrations import STEPS
from modelserve.store.store import engine_of
from modelserve.store.tables import LAYOUT, METADATA
from tests.modelserve.store.test_store_postgresql import Server
from tests.modelserve.store.test_store_postgresql import server as server  # the fixture: a PostgreSQL of our own

FIRST = Path(__file__).with_name("first_layout.sql")
TYPES = {
    "sqlite": {"COUNTED": "INTEGER NOT NULL PRIMARY KEY AUTOINCREMENT", "BYTES": "BLOB", "FLOAT": "FLOAT"},
    "postgresql": {"COUNTED": "BIGSERIAL NOT NULL PRIMARY KEY", "BYTES": "BYTEA", "FLOAT": "FLOAT(53)"},
}
OPEN = """
import os, signal, sys
from sqlalchemy import event
from modelserve.store import Store, store
def die(connection, cursor, statement, *_):
    if statement.startswith(sys.argv[2]):
        os.kill(os.getpid(), signal.SIGKILL)
made = store.engine_of
def engine_of(url, **options):
    engine = made(url, **options)
    event.listen(engine, "after_cursor_execute", die)
    return engine
if sys.argv[2]:
    store.engine_of = engine_of
sys.stdin.read()
Store.open(sys.argv[1]).close()
"""
NewUrl = Callable[[str], str]


@pytest.fixture(params=["sqlite", pytest.param("postgresql", marks=pytest.mark.slow)])
def new_url(request: pytest.FixtureRequest, tmp_path: Path) -> NewUrl:
    if request.param == "sqlite":
        return lambda name: f"sqlite:///{tmp_path}/{name}.db"
    made: Server = request.getfixturevalue("server")
    return made.make_database


def first_store(url: str, rows: int = 3) -> dict[str, list[dict[str, object]]]:
    """Make a store of the first layout with rows in every table; return the rows by table."""
    engine = engine_of(url)
    sql = FIRST.read_text()
    for word, kind in TYPES[engine.dialect.name].items():
        sql = sql.replace(word, kind)
    with engine.begin() as connection:
        for statement in filter(None, map(str.strip, sql.split(";"))):
            connection.exec_driver_sql(statement)
        for table in inspect(connection).get_table_names():
            columns = inspect(connection).get_columns(table)
            for n in range(1, 2 if table == "taut_store" else rows + 1):
                row = {each["name"]: value(table, each["name"], str(each["type"]), n) for each in columns}
                names = ", ".join(f'"{name}"' for name in row)
                marks = ", ".join(f":{name}" for name in row)
                connection.execute(text(f"INSERT INTO {table} ({names}) VALUES ({marks})"), row)
    found = contents(url)
    engine.dispose()
    return found


def value(table: str, name: str, kind: str, n: int) -> object:
    if table == "taut_store":
        return {"one": 1, "layout": 1, "seq": 40}[name]
    if kind in ("BLOB", "BYTEA"):
        return bytes([0, 255, n]) * n
    return n + 0.5 if kind in ("FLOAT", "DOUBLE PRECISION") else f"{name} {n} \u00fc" if kind == "TEXT" else n


def contents(url: str) -> dict[str, list[dict[str, object]]]:
    engine = engine_of(url)
    with engine.connect() as connection:
        names = inspect(connection).get_table_names()
        found = {
            name: [dict(row) for row in connection.execute(text(f"SELECT * FROM {name} ORDER BY 1")).mappings()]
            for name in names
        }
    engine.dispose()
    return found


def kept(before: dict[str, list[dict[str, object]]], after: dict[str, list[dict[str, object]]]) -> bool:
    """Return whether every table has the rows of before, beside new columns."""
    ours = {
        name: [{key: each[key] for key in rows[0]} for each in after[name]] for name, rows in before.items() if rows
    }
    ours["taut_store"][0]["layout"] = 1
    return ours == {name: rows for name, rows in before.items() if rows}


def check_whole(url: str, before: dict[str, list[dict[str, object]]]) -> None:
    after = contents(url)
    assert kept(before, after)
    assert after["taut_store"] == [{"one": 1, "layout": LAYOUT, "seq": 40}]
    assert [row["weight"] for row in after["taut_answers"]] == [
        256 + 9 * n for n in range(1, len(before["taut_answers"]) + 1)
    ]
    assert {row["trust"] for row in after["taut_feedback"]} == {"confirmed"}
    engine = engine_of(url)
    for table in METADATA.tables.values():
        columns = {each["name"] for each in inspect(engine).get_columns(table.name)}
        indexes = {
            each["name"] for each in inspect(engine).get_indexes(table.name) if not each.get("duplicates_constraint")
        }
        assert columns == set(table.columns.keys())
        assert indexes == {index.name for index in table.indexes}
    engine.dispose()


def opening(url: str, killed_after: str = "") -> "subprocess.Popen[bytes]":
    command = [sys.executable, "-c", OPEN, url, killed_after]
    return subprocess.Popen(command, stdin=subprocess.PIPE, stderr=subprocess.PIPE)


def test_a_store_of_the_first_layout_is_brought_forward_with_all_its_rows(new_url: NewUrl) -> None:
    url = new_url("first")
    before = first_store(url)
    opened = Store.open(url)
    assert opened.seq() == 40
    assert read_answer(opened, "answer_id 2 \u00fc").response == bytes([0, 255, 2]) * 2
    opened.close()
    check_whole(url, before)
    Store.open(url).close()
    check_whole(url, before)


@pytest.mark.slow
@pytest.mark.parametrize("step", [STEPS[1][0], STEPS[1][1], STEPS[3][0], "UPDATE taut_store"])
def test_a_killed_migration_is_rolled_back_and_the_next_opening_repeats_it(new_url: NewUrl, step: str) -> None:
    url = new_url(f"killed{len(step)}")
    before = first_store(url)
    with opening(url, killed_after=step) as child:
        child.communicate(timeout=60)
    assert child.returncode == -9
    assert contents(url) == before
    Store.open(url).close()
    check_whole(url, before)


@pytest.mark.slow
def test_workers_that_open_at_once_migrate_once(new_url: NewUrl) -> None:
    url = new_url("shared")
    before = first_store(url, rows=200)
    children = [opening(url) for _ in range(4)]
    for child in children:
        assert child.stdin is not None
        child.stdin.close()  # all of them wait for it
    assert [child.wait(60) for child in children] == [0] * 4, [
        child.stderr.read() for child in children if child.stderr
    ]
    for child in children:
        assert child.stderr is not None
        child.stderr.close()
    after = contents(url)
    assert kept(before, after)
    assert after["taut_store"][0]["layout"] == LAYOUT
