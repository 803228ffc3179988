"""The worked queries of `docs/queries.md`: found in the page, answered over the lake it makes, or written anew.

No test stands here. Run by hand to write the answers of the page anew: `python -m tests.query_examples`.
"""

import io
import os
import re
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import duckdb
import polars as pl

from pipelines.lake import sql
from pipelines.lake.lake import Lake
from pipelines.render import render

PAGE = Path(__file__).resolve().parents[1] / "docs" / "queries.md"
SETTING_UP = re.compile(r"```sh\n(.*?)```", re.DOTALL)
EXAMPLE = re.compile(r"```sql\n(?P<query>.*?)```\n(?:\n```text\n(?P<answer>.*?)```\n)?", re.DOTALL)


@dataclass(frozen=True, kw_only=True)
class Example:
    """A query of the page, and the answer that is shown below it."""

    query: str
    answer: str

    @property
    def sealed(self) -> bool:
        """Tell whether `taut sql` runs it: it does not show what DuckDB says of its own tables."""
        return "duckdb_" not in self.query


def examples(page: str) -> Iterator[Example]:
    """Yield the worked queries of a page, in its order."""
    for found in EXAMPLE.finditer(page):
        yield Example(query=found["query"], answer=found["answer"] or "")


def set_up(page: str, folder: Path) -> Lake:
    """Carry out in a folder what the page says makes its lake."""
    [script] = SETTING_UP.findall(page)
    ours = {"PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}", "OMP_NUM_THREADS": "1"}
    kept = {name: value for name, value in os.environ.items() if not name.startswith("TAUT_")}
    subprocess.run(["sh", "-euc", script], capture_output=True, timeout=300, cwd=folder, env=kept | ours, check=True)
    return Lake(folder / "lake")


def answered_by_taut(lake: Lake, query: str) -> str:
    """Return what `taut sql` shows."""
    return shown(sql.query(lake, query))


def answered_by_duckdb(lake: Lake, query: str) -> str:
    """Return what a plain DuckDB finds in the lake's own file, shown alike."""
    with duckdb.connect(str(lake.views_file), read_only=True) as connection:
        return shown(pl.DataFrame(connection.sql(query).to_arrow_table()))


def shown(rows: pl.DataFrame) -> str:
    """Return rows as a table."""
    stream = io.StringIO()
    render(rows, "table", stream=stream)
    return stream.getvalue()


def with_answers(page: str, lake: Lake) -> str:
    """Return the page with every answer as it is found now."""

    def renewed(found: re.Match[str]) -> str:
        query = found["query"]
        return f"```sql\n{query}```\n\n```text\n{answered_by_duckdb(lake, query)}```\n"

    return EXAMPLE.sub(renewed, page)


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as folder:
        text = PAGE.read_text(encoding="utf-8")
        PAGE.write_text(with_answers(text, set_up(text, Path(folder))), encoding="utf-8")
