"""The store as an owned resource: opened by URL, read and written in short transactions, safe from several threads.

What the tables hold is written and read by the files beside. Called by whoever composes the service.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING

from sqlalchemy import Connection, Engine, update

from modelserve.store.opening import WRITES, engine_of, prepare, translated
from modelserve.store.tables import STORE

if TYPE_CHECKING:
    from modelserve.store.answers import AnswerRecord


@dataclass(frozen=True, slots=True, kw_only=True)
class Store:
    """An open store. `where` names it without its password."""

    engine: Engine
    where: str

    @classmethod
    def open(cls, url: str) -> "Store":
        """Open the store at `url` and make its tables if it is new.

        Raises
        ------
        StoreError
            It cannot be reached, or is another program's or another version's.
        """
        engine = engine_of(url)
        try:
            prepare(engine)
        except BaseException:
            engine.dispose()
            raise
        return cls(engine=engine, where=engine.url.render_as_string(hide_password=True))

    def close(self) -> None:
        """Close every connection."""
        self.engine.dispose()

    def seq(self) -> int:
        """Return the number of the latest change, 0 before the first; the cheapest question there is.

        Raises
        ------
        StoreError
            The store cannot be read.
        """
        with self.reading("asking for news") as connection:
            return int(connection.exec_driver_sql(f"SELECT seq FROM {STORE.name}").scalar_one())

    def answer(self, answer_id: str) -> "AnswerRecord | None":
        """Return one logged answer, or None where there is none of that id.

        Raises
        ------
        StoreError
            The store cannot be read.
        """
        from modelserve.store.answers import read_answer

        return read_answer(self, answer_id)

    @contextmanager
    def reading(self, doing: str) -> Iterator[Connection]:
        """Lend a connection to read by; `doing` says in errors what it was for."""
        with translated(doing), self.engine.connect() as connection, connection.begin():
            yield connection

    @contextmanager
    def writing(self, doing: str) -> Iterator[Connection]:
        """Lend a connection whose writes all happen, or none; they have happened once the block is left."""
        with (
            translated(doing),
            self.engine.connect().execution_options(**{WRITES: True}) as connection,
            connection.begin(),
        ):
            yield connection


def take_numbers(connection: Connection, count: int) -> int:
    """Take the next `count` change numbers and return the first; other writers of changes wait until the end."""
    last = connection.execute(update(STORE).values(seq=STORE.c.seq + count).returning(STORE.c.seq)).scalar_one()
    return int(last) - count + 1
