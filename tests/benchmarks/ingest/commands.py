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

PHILLY_TYPES: Final = {"time": "VARCHAR", "machine": "VARCHAR"} | {f"gpu{i}": "DOUBLE" for i in range(8)}


def ingest(source: str, folder: str, lake: str, name: str) -> None:
    """Ingest a folder under a name."""
    from pipelines.ingest import ingest as run

    run(source, folder, lake, as_name=name)


def duckdb_tables(folder: str, target: str) -> None:
    """Read the seven PAI files into typed tables of a database file: DuckDB alone, with the memory an ingest has."""
    with _duckdb(target) as work:
        for name, columns in COLUMNS.items():
            types = _struct({c: "VARCHAR" if c in TEXTS else "DOUBLE" for c in columns})
            read = f"read_csv('{folder}/{name}.csv', header = false, auto_detect = false, columns = {types})"
            work.execute(f"CREATE TABLE {name} AS FROM {read}")


def duckdb_parquet(folder: str, target: str) -> None:
    """Copy Philly's GPU table from CSV to Parquet as it stands."""
    read = (
        f"read_csv('{folder}/cluster_gpu_util', skip = 1, header = false, auto_detect = false, delim = ',', "
        f"nullstr = 'NA', columns = {_struct(PHILLY_TYPES | {'nothing': 'VARCHAR'})})"
    )
    with _duckdb(target) as work:
        work.execute(f"COPY (FROM {read}) TO '{target}.parquet' (FORMAT parquet, COMPRESSION zstd)")


def pandas_notebook(folder: str, target: str) -> None:
    """Read, merge and group the PAI tables as the trace's official notebook does, and write what comes out."""
    import pandas as pd

    read = {
        name: pd.read_csv(Path(folder) / f"pai_{name}.csv", names=list(COLUMNS[f"pai_{name}"]), dtype=_dtypes(name))
        for name in ("job_table", "task_table", "instance_table", "sensor_table", "group_tag_table", "machine_spec")
    }
    metric = pd.read_csv(Path(folder) / "pai_machine_metric.csv", names=list(COLUMNS["pai_machine_metric"]))
    tasks = read["task_table"].merge(read["job_table"], on="job_name", suffixes=("", "_job"))
    tasks = tasks.merge(read["group_tag_table"].drop(columns="user"), on="inst_id", how="left")
    keys = ["job_name", "task_name"]
    placed = read["instance_table"].merge(read["machine_spec"], on="machine", how="left")
    measured = placed.merge(read["sensor_table"].drop(columns=["inst_id", "machine"]), on=[*keys, "worker_name"])
    started = placed.groupby(keys)["start_time"].min().rename("first_start").reset_index()
    means = [*COLUMNS["pai_sensor_table"][6:]]
    used = measured.groupby(keys)[means].agg(["mean", "max"])
    used.columns = ["_".join(pair) for pair in used.columns]
    tasks = tasks.merge(started, on=keys, how="left").merge(used.reset_index(), on=keys, how="left")
    tasks.to_parquet(f"{target}-tasks.parquet")
    metric.groupby(["machine", "start_time"])[["machine_cpu", "machine_gpu"]].mean().to_parquet(f"{target}-use.parquet")


def group_by(lake: str) -> None:
    """Print the seconds that a mean per machine over all minutes of a lake takes, the connection open."""
    from pipelines.lake import Lake

    with Lake(lake) as held:
        connection = held.connect()
        start = time.perf_counter()
        connection.execute("SELECT machine, avg(gpu_frac), count(*) FROM machine_usage GROUP BY machine").fetchall()
        print(time.perf_counter() - start)


COMMANDS: Final[dict[str, Callable[..., None]]] = {
    "ingest": ingest,
    "duckdb_tables": duckdb_tables,
    "duckdb_parquet": duckdb_parquet,
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


def _dtypes(name: str) -> dict[str, str]:
    return {c: "str" if c in TEXTS else "float64" for c in COLUMNS[f"pai_{name}"]}


if __name__ == "__main__":
    COMMANDS[sys.argv[1]](*sys.argv[2:])
    print(_peak_kib())
