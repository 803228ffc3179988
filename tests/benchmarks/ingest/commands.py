"""What is measured: `... commands NAME FOLDER TARGET`, each in its own process; prints last its peak memory in KiB."""

import resource
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Final

import duckdb

from pipelines.lake.ingest import ingest as run
from pipelines.synth.published import COLUMNS

TEXTS: Final = frozenset(
    {"job_name", "task_name", "inst_id", "user", "status", "gpu_type", "inst_name", "worker_name", "machine"}
    | {"gpu_name", "gpu_type_spec", "group", "workload"}
)
"""The columns of the PAI tables that are no numbers."""
PHILLY: Final = {"time": "VARCHAR", "machine": "VARCHAR", **{f"gpu{i}": "DOUBLE" for i in range(8)}, "end": "DOUBLE"}
"""The columns of Philly's GPU table; its rows end in a comma."""


def ingest(folder: str, lake: str, source: str) -> None:
    """Ingest a folder."""
    run(source, folder, lake, as_name=f"{source}-made")


def duckdb_tables(folder: str, target: str) -> None:
    """Read the seven PAI files into typed tables of a database file: DuckDB alone, with the memory an ingest has."""
    with _duckdb(target) as work:
        for name, columns in COLUMNS.items():
            types = {c: "VARCHAR" if c in TEXTS else "DOUBLE" for c in columns}
            read = f"read_csv('{folder}/{name}.csv', header = false, auto_detect = false, columns = {types})"
            work.execute(f"CREATE TABLE {name} AS FROM {read}")


def duckdb_parquet(folder: str, target: str) -> None:
    """Copy Philly's GPU table from CSV to Parquet as it stands, compressed as the lake is."""
    read = (
        f"read_csv('{folder}/cluster_gpu_util', skip = 1, header = false, auto_detect = false, delim = ',', "
        f"nullstr = ['', 'NA'], columns = {PHILLY})"
    )
    with _duckdb(target) as work:
        work.execute(f"COPY (FROM {read}) TO '{target}.parquet' (FORMAT parquet, COMPRESSION zstd)")


COMMANDS: Final[dict[str, Callable[..., None]]] = {
    each.__name__: each for each in (ingest, duckdb_tables, duckdb_parquet)
}


def _peak_kib() -> int:
    """Return the most memory that this process held, or a child of its; what its parent held does not count."""
    status = Path("/proc/self/status").read_text()
    own = next(int(line.split()[1]) for line in status.splitlines() if line.startswith("VmHWM"))
    return max(own, resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss)


def _duckdb(target: str) -> duckdb.DuckDBPyConnection:
    limits: dict[str, str | bool | int | float | list[str]] = {"memory_limit": "1GB", "threads": 2}
    return duckdb.connect(f"{target}.duckdb", config=limits | {"temp_directory": f"{target}.spill"})


if __name__ == "__main__":
    COMMANDS[sys.argv[1]](*sys.argv[2:])
    print(_peak_kib())
