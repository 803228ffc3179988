"""Philly's three per-minute tables: GPU, CPU and memory use of every machine, joined to one row per minute.

The job log and the machine list are in `philly.py`. Rows of a machine and minute are folded by mean.
Called by `pipelines.lake.sources.philly`.

Notes
-----
Times carry PDT or PST, so the repeated hour is told apart. GPU rows hold one field per GPU from the third on (8 and a
trailing comma, or 16); `NA` is a GPU or a server that was offline. The mean is over the GPUs that were not.
Percentages are averaged as decimals of nine digits (what is published), so that the order of rows does not matter.
"""

from pipelines.lake.sources.source import COMPUTED, Column, RawTable, Rule, Shortcut, missing, negative, number, text

ARCHIVES = ("trace-data.tar.gz",)
SUFFIXES = ("", ".csv", ".gz", ".csv.gz")
GPUS_MOST = 16

# By microseconds, since a cast to the type of times with zones asks the calendar of the zone for every row.
TIME = Column(
    name="ts",
    value="""make_timestamptz(epoch_us(coalesce(
        try_strptime({text}, '%Y-%m-%d %H:%M:%S PDT') + INTERVAL 7 HOURS,
        try_strptime({text}, '%Y-%m-%d %H:%M:%S PST') + INTERVAL 8 HOURS)))""",
)
# Some published rows of the CPU table in the repeated hour are not numbers: they are quarantined as unparsable.
KEY = missing("ts", "machine")

# `NA` and the empty field are offline; anything else that is no number spoils the row.
OFFLINE = ("", "NA")
GPUS = tuple(f"gpu{i}_util" for i in range(GPUS_MOST))
ONE_GPU = "CASE WHEN isfinite(try_cast({text} AS DOUBLE)) THEN {text}::DOUBLE END"
ONLINE = " + ".join(f"({name} IS NOT NULL)::INTEGER" for name in GPUS)


def _one_gpu(name: str) -> Column:
    return Column(name=name, value=ONE_GPU, missing=OFFLINE, read_as="DOUBLE", finite="{text}", fault="busy")


GPU_UTIL = RawTable(
    name="gpu_util",
    stems=("cluster_gpu_util",),
    suffixes=SUFFIXES,
    archives=ARCHIVES,
    header=("time", "machineId", *GPUS[:8]),
    fields=(10, 11, GPUS_MOST + 2, GPUS_MOST + 3),
    feeds="machine_usage",
    columns=(
        TIME,
        text("machine"),
        *(
            Column(name=name, value=ONE_GPU, missing=OFFLINE, read_as="DOUBLE", finite="{text}", fault="busy")
            for name in GPUS
        ),
        Column(
            name="busy",
            text=COMPUTED,
            value=f"({' + '.join(f'coalesce({name}, 0)' for name in GPUS)}) / nullif({ONLINE}, 0)",
        ),
    ),
    rules=(
        KEY,
        Rule(name="negative_use", bad=f"least({', '.join(GPUS)}) < 0"),
        Rule(name="use_beyond_measure", bad=f"greatest({', '.join(GPUS)}) > 1e6"),
    ),
    passing=GPUS,
    nulls=OFFLINE,
)

CPU_UTIL = RawTable(
    name="cpu_util",
    stems=("cluster_cpu_util",),
    suffixes=SUFFIXES,
    archives=ARCHIVES,
    header=("time", "machine_id", "cpu_util"),
    fields=(3, 4),
    feeds="machine_usage",
    columns=(TIME, text("machine"), number("cpu_util")),
    rules=(KEY, negative("cpu_util", rule="negative_use"), Rule(name="use_beyond_measure", bad="cpu_util > 1e6")),
)

MEM_UTIL = RawTable(
    name="mem_util",
    stems=("cluster_mem_util",),
    suffixes=SUFFIXES,
    archives=ARCHIVES,
    header=("time", "machine_id", "mem_total", "mem_free"),
    fields=(4, 5),
    feeds="machine_usage",
    columns=(TIME, text("machine"), number("mem_total"), number("mem_free")),
    rules=(
        KEY,
        negative("mem_total", "mem_free", rule="negative_use"),
        Rule(name="free_above_total", bad="mem_free > mem_total"),
    ),
)

MACHINE_USAGE = """
WITH measured AS (
    SELECT machine, ts, CAST(NULL AS DECIMAL(18, 9)) AS cpu, CAST(NULL AS DECIMAL(18, 9)) AS mem,
        CAST(busy AS DECIMAL(18, 9)) AS gpu FROM gpu_util
    UNION ALL SELECT machine, ts, CAST(cpu_util AS DECIMAL(18, 9)), NULL, NULL FROM cpu_util
    UNION ALL SELECT machine, ts, NULL, CAST(100 * (1 - mem_free / nullif(mem_total, 0)) AS DECIMAL(18, 9)), NULL
        FROM mem_util
)
SELECT machine, ts, avg(cpu) / 100 AS cpu_frac, avg(mem) / 100 AS mem_frac, avg(gpu) / 100 AS gpu_frac
FROM measured GROUP BY machine, ts
"""

GPU_USE_ALONE = Shortcut(
    table="gpu_util",
    select="SELECT machine, ts, CAST(CAST(busy AS DECIMAL(18, 9)) AS DOUBLE) / 100 AS gpu_frac FROM gpu_util",
)
