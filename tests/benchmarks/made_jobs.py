"""Made-up job tables of any size, written by DuckDB without holding them: one Parquet file and its mapping.

The jobs are synthetic. Few groups have most jobs; a group has a usual run time and use, and requests more. Numbers come
from hashes of the job's number, so a table is the same on every machine.
"""

from pathlib import Path
from typing import Final

import duckdb

TYPES: Final = ("ctr", "cv", "nlp", "gnn", "rl")
JOBS_A_GROUP: Final = 200
"""How many jobs a group has on average."""
JOBS_A_DAY: Final = 20_000

_UNIFORM: Final = "((hash(concat({what}, ' ', {salt})) >> 11) / pow(2, 53))"

MAPPING: Final = """
[jobs]
format = "parquet"

[jobs.columns]
job_id = "job"
user = "owner"
group = "name"
task_type = "type"
submit_ts = { column = "submitted", time = "epoch_s" }
start_ts = { column = "started", time = "epoch_s" }
end_ts = { column = "ended", time = "epoch_s" }
run_s = "run_s"
status = { column = "state", as = "slurm_state" }
req_cpu_cores = "cores"
req_mem_gib = "mem_gib"
req_gpus = "gpus"

[usage.columns]
used_cpu_cores = "used_cores"
mem_max_gib = "peak_gib"
used_gpus = "used_gpus"
"""


def _normal(what: str, salt: int) -> str:
    """Return SQL of a standard normal number for each value of an expression (Box and Muller, 1958)."""
    first, second = (_UNIFORM.format(what=what, salt=salt + k) for k in (0, 1))
    return f"sqrt(-2 * ln(1 - {first})) * cos(2 * pi() * {second})"


def write(folder: Path, jobs: int) -> tuple[Path, Path]:
    """Write `jobs` jobs to `folder/jobs.parquet`; return the file and its mapping file."""
    folder.mkdir(parents=True, exist_ok=True)
    table, mapping = folder / "jobs.parquet", folder / "mapping.toml"
    groups = max(jobs // JOBS_A_GROUP, len(TYPES))
    of_job = {name: _UNIFORM.format(what="n", salt=salt) for name, salt in (("pick", 1), ("waits", 2), ("state", 3))}
    usual = f"exp(6.5 + 1.5 * {_normal('g', 10)})"
    query = f"""
        WITH drawn AS (
            SELECT n, (pow({of_job["pick"]}, 2) * {groups})::BIGINT AS g FROM range({jobs}) AS t(n)
        ), known AS (
            SELECT n, g, 1577836800 + n * 86400 / {JOBS_A_DAY} AS submitted,
                pow(2, hash(concat(g, ' 20')) % 4)::INTEGER AS gpus,
                least({usual} * exp(0.5 * {_normal("n", 30)}), 5e5) AS run_s,
                0.5 + 3.5 * {_UNIFORM.format(what="g", salt=21)} AS cores_a_gpu,
                2 + 20 * {_UNIFORM.format(what="g", salt=22)} AS gib_a_gpu, exp(0.1 * {_normal("n", 40)}) AS varies,
                round(120 * {of_job["waits"]}) AS waits
            FROM drawn
        )
        SELECT n AS job, 'u' || hash(concat(g, ' 23')) % {max(groups // 5, 3)} AS owner, 'train-' || g AS name,
            [{", ".join(f"'{t}'" for t in TYPES)}][1 + g % {len(TYPES)}] AS type, submitted,
            submitted + waits AS started, submitted + waits + run_s AS ended, run_s,
            CASE WHEN {of_job["state"]} < 0.9 THEN 'COMPLETED' ELSE 'FAILED' END AS state, 8.0 * gpus AS cores,
            64.0 * gpus AS mem_gib, gpus, cores_a_gpu * gpus * varies AS used_cores,
            gib_a_gpu * gpus * varies AS peak_gib,
            least(0.2 + 0.6 * {_UNIFORM.format(what="g", salt=24)}, 1) * gpus AS used_gpus
        FROM known ORDER BY n"""
    with duckdb.connect(config={"memory_limit": "1GB", "temp_directory": str(folder / "spill")}) as work:
        work.execute("SET preserve_insertion_order = true")
        work.execute(f"COPY ({query}) TO '{table}' (FORMAT parquet, COMPRESSION zstd)")
    mapping.write_text(MAPPING)
    return table, mapping
