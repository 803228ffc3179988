"""What is measured, one call each in a process of its own: `python -m tests.benchmarks.ingest.commands NAME ARGS`.

Nothing is timed here but the query; each says last how much memory it held at most, and `children` takes the time.
Called by `tests.benchmarks.ingest.__main__`.
"""

import resource
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Final

from pipelines.synth.published import COLUMNS

TEXTS: Final = frozenset(
    {"job_name", "task_name", "inst_id", "user", "status", "gpu_type", "inst_name", "worker_name", "machine"}
    | {"gpu_name", "gpu_type_spec", "group", "workload"}
)
"""The columns of the PAI tables that are no numbers."""

PHILLY_NUMBERS: Final = {
    "cluster_gpu_util": (*(f"gpu{i}" for i in range(8)), "nothing"),
    "cluster_cpu_util": ("cpu_util",),
    "cluster_mem_util": ("mem_total", "mem_free"),
}
"""The columns of Philly's utilisation tables after the time and the machine; GPU rows end in a comma."""


def ingest(source: str, folder: str, lake: str, name: str) -> None:
    """Ingest a folder under a name."""
    from pipelines.lake.ingest import ingest as run

    run(source, folder, lake, as_name=name)


def duckdb_tables(folder: str, target: str) -> None:
    """Read the seven PAI files into typed tables of a database file: DuckDB alone, with the memory an ingest has."""
    with _duckdb(target) as work:
        for name, columns in COLUMNS.items():
            types = _struct({c: "VARCHAR" if c in TEXTS else "DOUBLE" for c in columns})
            read = f"read_csv('{folder}/{name}.csv', header = false, auto_detect = false, columns = {types})"
            work.execute(f"CREATE TABLE {name} AS FROM {read}")


def duckdb_parquet(folder: str, target: str) -> None:
    """Copy Philly's utilisation tables from CSV to Parquet as they stand, compressed as the lake is."""
    with _duckdb(target) as work:
        for name, numbers in PHILLY_NUMBERS.items():
            if (Path(folder) / name).exists():
                types = {"time": "VARCHAR", "machine": "VARCHAR"} | dict.fromkeys(numbers, "DOUBLE")
                read = (
                    f"read_csv('{folder}/{name}', skip = 1, header = false, auto_detect = false, delim = ',', "
                    f"nullstr = ['', 'NA'], columns = {_struct(types)})"
                )
                work.execute(f"COPY (FROM {read}) TO '{target}-{name}.parquet' (FORMAT parquet, COMPRESSION zstd)")


def ingest_and_ask(folder: str, lake: str) -> None:
    """Ingest a PAI folder, and answer what the notebook answers."""
    ingest("pai", folder, lake, "pai-made")
    ask(lake)


def ask(lake: str) -> None:
    """Print the share of measured tasks that ask for more than they use, of CPU, GPU and memory."""
    from pipelines.lake.lake import Lake

    asked = (("req_cpu_cores", "used_cpu_cores"), ("req_gpus", "used_gpus"), ("req_mem_gib", "mem_avg_gib"))
    shares = ", ".join(f"avg(({request} > {used})::INTEGER)" for request, used in asked)
    with Lake(lake) as held:
        query = f"SELECT {shares} FROM jobs JOIN usage USING (trace, cluster, job_id, role)"
        print(*held.connect().execute(query).fetchall()[0])


def pandas_notebook(folder: str, _: str) -> None:
    """Answer it in pandas, by the steps of the trace's official notebook."""
    from tests.benchmarks.ingest.notebook import over_claims

    print(*over_claims(Path(folder)))


def group_by(lake: str) -> None:
    """Print the seconds that a mean per machine over all minutes of a lake takes, the connection open."""
    from pipelines.lake.lake import Lake

    with Lake(lake) as held:
        connection = held.connect()
        start = time.perf_counter()
        connection.execute("SELECT machine, avg(gpu_frac), count(*) FROM machine_usage GROUP BY machine").fetchall()
        print(time.perf_counter() - start)


COMMANDS: Final[dict[str, Callable[..., None]]] = {
    "ingest": ingest,
    "duckdb_tables": duckdb_tables,
    "duckdb_parquet": duckdb_parquet,
    "ingest_and_ask": ingest_and_ask,
    "ask": ask,
    "pandas_notebook": pandas_notebook,
    "group_by": group_by,
}


def _peak_kib() -> int:
    """Return the most memory that this process held, or a child of its; what its parent held does not count."""
    status = Path("/proc/self/status").read_text()
    own = next(int(line.split()[1]) for line in status.splitlines() if line.startswith("VmHWM"))
    return max(own, resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss)


def _duckdb(target: str):  # type: ignore[no-untyped-def]  # the type would import DuckDB for pandas' process as well
    import duckdb

    limits: dict[str, str | bool | int | float | list[str]] = {"memory_limit": "1GB", "threads": 2}
    return duckdb.connect(f"{target}.duckdb", config=limits | {"temp_directory": f"{target}.spill"})


def _struct(types: dict[str, str]) -> str:
    return "{" + ", ".join(f"'{name}': '{kind}'" for name, kind in types.items()) + "}"


if __name__ == "__main__":
    COMMANDS[sys.argv[1]](*sys.argv[2:])
    print(_peak_kib())
