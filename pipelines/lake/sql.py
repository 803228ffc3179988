"""Run a user's SELECT on the lake's tables and views, in a child process with limits of memory, time and spill.

The text must be one SELECT whose table functions only generate rows. The connection is sealed: it can read only the
lake's Parquet files and can neither load extensions, change settings nor use the network. The child is killed when its
time or spill is used up, and ends if its parent dies; above the limit of memory its allocations fail.
"""

import contextlib
import json
import os
import re
import resource
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import AbstractContextManager, closing
from pathlib import Path
from typing import TYPE_CHECKING, Final, NamedTuple

import duckdb

from pipelines.errors import QueryRefused
from pipelines.lake.lake import Lake
from pipelines.lake.storage import scratch

if TYPE_CHECKING:
    import polars as pl

__all__ = ["query"]

PREFIX: Final = "taut-sql-"
BATCH_ROWS: Final = 10_000
LEAST_MB: Final = 200
"""Memory in MB that a query gets in any case, in addition to what its process uses already."""
LOOK_EVERY_S: Final = 0.05
MB: Final = 1_000_000
BLOCK_BYTES: Final = 512
CURE: Final = "aggregate, add LIMIT, or set"

TABLE_FUNCTIONS: Final = frozenset({"range", "generate_series", "unnest", "repeat", "json_each", "json_tree"})
"""The allowed table functions; all others read files or change the database."""


class Job(NamedTuple):
    """Input of the child process, as JSON: the lake, the text, its folder, and limits of memory and result."""

    lake: str
    text: str
    folder: str
    memory_mb: int
    result_mb: int


def query(
    lake: Lake, text: str, *, memory_mb: int = 1500, time_s: float = 60.0, spill_mb: int = 1000, tabular: bool = False
) -> "pl.DataFrame":
    """Run one SELECT and return its rows; `memory_mb`, `time_s` and `spill_mb` are the most that it may take.

    Rows to be rendered as a table (`tabular`) take about 40 times their memory.
    """
    import polars as pl

    result_mb = max(1, memory_mb // (60 if tabular else 6))
    with spill_folder() as folder:
        with closing(lake.connect(folder)) as connection:
            try:
                refuse_all_but_select(connection, text)
            except duckdb.Error as error:
                raise QueryRefused(f"DuckDB cannot run the query: {_with_hint(error)}") from error
        job = Job(str(lake.path), text, str(folder), memory_mb, result_mb)
        command = [sys.executable, "-P", "-m", "pipelines.lake.sql"]  # -P: nothing is imported from the present folder
        pipe = subprocess.PIPE
        with subprocess.Popen(command, stdin=pipe, stdout=pipe, stderr=subprocess.DEVNULL) as child:  # noqa: S603  # our own module
            try:
                said = _watched(child, json.dumps(job._asdict()), folder, time_s, spill_mb)
            finally:
                child.kill()
        if child.returncode:
            raise QueryRefused(said or f"the query needs more than {memory_mb} MB of memory; {CURE} --memory-mb")
        try:
            return _plain(pl.read_ipc_stream(folder / "result"))
        except pl.exceptions.PolarsError as error:
            why = f"a column of a type that cannot be printed ({_first_line(error)}); cast it to VARCHAR"
            raise QueryRefused(why) from error


def spill_folder() -> AbstractContextManager[Path]:
    """Yield an empty folder and remove it at the end; first remove the folders of processes that were killed."""
    return scratch(Path(tempfile.gettempdir()), PREFIX)


def _watched(child: "subprocess.Popen[bytes]", job: str, folder: Path, time_s: float, spill_mb: int) -> str:
    """Wait for the child, whose time counts from the first line it prints; return the refusal it prints, if any."""
    if child.stdin is None or child.stdout is None:
        raise AssertionError("both are pipes")
    child.stdin.write(f"{job}\n".encode())
    child.stdin.flush()
    child.stdout.readline()
    began = time.monotonic()
    while child.poll() is None:
        with contextlib.suppress(subprocess.TimeoutExpired):
            child.wait(LOOK_EVERY_S)
        if child.returncode is None and time.monotonic() - began >= time_s:
            raise QueryRefused(f"the query took longer than {time_s:g} s; {CURE} --time-s")
        # DuckDB 2.0 does not keep to its own setting of the size of spilled data.
        if _size_mb(folder / "spill") > spill_mb:
            raise QueryRefused(f"the query spilled more than {spill_mb} MB; {CURE} --spill-mb")
    return child.stdout.read().decode()


def refuse_all_but_select(connection: duckdb.DuckDBPyConnection, text: str) -> None:
    """Check that the text is one SELECT that calls only the table functions in `TABLE_FUNCTIONS`."""
    statements = connection.extract_statements(text)
    if len(statements) != 1:
        raise QueryRefused(f"{len(statements)} statements; expected one SELECT")
    kind = statements[0].type
    if kind != duckdb.StatementType.SELECT:
        raise QueryRefused(f"a {kind.name} statement; expected one SELECT (the lake is for reading)")
    [[serialized]] = connection.execute("SELECT json_serialize_sql(?::VARCHAR)", [text]).fetchall()
    tree = json.loads(serialized)
    if tree["error"]:
        raise QueryRefused("a statement that DuckDB cannot parse into a tree; expected one plain SELECT")
    foreign = sorted(set(_table_functions(tree)) - TABLE_FUNCTIONS)
    if foreign:
        allowed = ", ".join(sorted(TABLE_FUNCTIONS))
        raise QueryRefused(f"the table function {foreign[0]!r}; expected the lake's tables, or {allowed}")


def _plain(rows: "pl.DataFrame") -> "pl.DataFrame":
    """Replace decimals by integers or floats; DuckDB returns sums of integers as decimals of 38 digits."""
    import polars as pl

    wide = {name: dtype for name, dtype in rows.schema.items() if isinstance(dtype, pl.Decimal)}
    narrow = {name: pl.Float64() if dtype.scale else pl.Int64() for name, dtype in wide.items()}
    return rows.with_columns(pl.col(name).cast(dtype) for name, dtype in narrow.items())


def _table_functions(node: object) -> Iterator[str]:
    """Yield the name of every table function in a statement's syntax tree."""
    if isinstance(node, list):
        for item in node:
            yield from _table_functions(item)
    elif isinstance(node, dict):
        function = node.get("function")
        if node.get("type") == "TABLE_FUNCTION" and isinstance(function, dict):
            yield str(function.get("function_name", "")).lower()
        for item in node.values():
            yield from _table_functions(item)


def _size_mb(folder: Path) -> float:
    """Return the disk space of the files in a folder; files that vanish meanwhile do not count."""
    size = 0
    for file in folder.rglob("*"):
        with contextlib.suppress(OSError):
            size += file.stat().st_blocks * BLOCK_BYTES
    return size / MB


def _with_hint(error: Exception) -> str:
    """Return DuckDB's message and its suggestion in one line, without the excerpt of the query."""
    return " ".join(str(error).partition("\n\nLINE ")[0].split())[:500]


def _first_line(error: Exception) -> str:
    return str(error).split("\n", 1)[0].split(". Hint:", 1)[0][:300]


def _run(job: Job) -> str | None:
    """Write a query's rows to the file `result` in the child's folder; return why the query is refused, if it is."""
    import pyarrow as pa

    lake, buffers_mb = Lake(job.lake), max(64, job.memory_mb // 2)
    with closing(lake.connect(Path(job.folder), buffers_mb, refresh=False)) as connection:
        pa.array([0])  # Arrow reserves 1 GiB of addresses at its first use, which must not count as the query's
        _limit_memory(job.memory_mb)
        sys.stdout.write("\n")
        sys.stdout.flush()
        try:
            size, reader = 0, connection.sql(job.text).to_arrow_reader(BATCH_ROWS)
            with pa.OSFile(f"{job.folder}/result", "wb") as file, pa.ipc.new_stream(file, reader.schema) as out:
                for batch in reader:
                    out.write_batch(batch)
                    size += batch.nbytes
                    if size > job.result_mb * MB:
                        return f"the result is larger than {job.result_mb} MB; {CURE} --memory-mb"
        except (duckdb.OutOfMemoryException, MemoryError, pa.ArrowMemoryError):
            return f"the query needs more than {job.memory_mb} MB of memory; {CURE} --memory-mb"
        except duckdb.PermissionException as error:
            return f"the query accesses something outside the lake: {_first_line(error)}"
        except duckdb.Error as error:
            return f"DuckDB cannot run the query: {_with_hint(error)}"
    return None


def _limit_memory(memory_mb: int) -> None:
    """Let allocations of private memory above the limit fail (on Linux; elsewhere memory is not limited)."""
    with contextlib.suppress(OSError):
        status = Path("/proc/self/status").read_text()
        used, data = (
            int(found) // 1000 for found in re.findall(r"^(?:VmRSS|VmData):\s+(\d+) kB", status, re.MULTILINE)
        )
        most = (data + max(LEAST_MB, memory_mb - used)) * MB
        resource.setrlimit(resource.RLIMIT_DATA, (most, most))


def _end_with_parent() -> None:
    sys.stdin.read()  # ends when the other end of the pipe is closed
    os._exit(1)


if __name__ == "__main__":
    given = Job(**json.loads(sys.stdin.readline()))
    threading.Thread(target=_end_with_parent, daemon=True).start()
    refusal = _run(given)
    sys.stdout.write(refusal or "")
    sys.stdout.flush()
    os._exit(int(refusal is not None))
