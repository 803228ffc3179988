"""Microsoft Philly: the job log (a JSON array), the machine list, and three per-minute tables of machine use.

Source names and US Pacific local time are converted by the SQL declared here; no file is read here.

Notes
-----
Jobs. The run time is the sum of the attempts' durations; the job starts with the first attempt and ends with the last.
The hour from 1:00 occurs twice on 2017-11-05. A time in it is taken as the first occurrence, unless that is before the
submission or the attempt's start; then as the second. An attempt without an end time is still running if it is the last
and the job did not pass; otherwise its duration is unknown. In both cases the job's run time is a lower bound; a
running attempt counts until the latest time in the log. Requests are those of the last attempt: its GPUs over all its
machines, and the number of machines if all have names.

Machine use. Times contain PDT or PST. GPU rows have one field per GPU from the third field on (8 and a trailing comma,
or 16). `NA` means that the GPU or the server was offline; the mean is over the other GPUs. Rows of the same machine and
minute are averaged as decimals of nine digits (the published precision), so that the order of rows has no effect.
"""

from dataclasses import replace

from features.vocabulary import ROLE_WHOLE_JOB, Status, TaskType
from pipelines.lake.sources.source import (
    COMPUTED,
    LOCAL_TIME,
    MOST_ASKED,
    Column,
    RawTable,
    Remark,
    Rule,
    Shortcut,
    Source,
    beyond,
    count,
    missing,
    negative,
    number,
    one_cluster,
    text,
    translated,
    unlisted,
)

ARCHIVES = ("trace-data.tar.gz",)
SUFFIXES = ("", ".csv", ".gz", ".csv.gz")
GPUS_MOST = 16

# Built from microseconds, which is faster: a cast to TIMESTAMPTZ looks up the time zone's calendar for every row.
TIME = Column(
    name="ts",
    value="""make_timestamptz(epoch_us(coalesce(
        try_strptime({text}, '%Y-%m-%d %H:%M:%S PDT') + INTERVAL 7 HOURS,
        try_strptime({text}, '%Y-%m-%d %H:%M:%S PST') + INTERVAL 8 HOURS)))""",
)
# Some CPU rows in the hour that occurs twice contain no numbers; they are quarantined as unparsable.
KEY = missing("ts", "machine")

# `NA` and the empty field mean that the GPU was offline; any other text that is no number quarantines the row.
OFFLINE = ("", "NA")
GPUS = tuple(f"gpu{i}_util" for i in range(GPUS_MOST))
ONLINE = " + ".join(f"({name} IS NOT NULL)::INTEGER" for name in GPUS)


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
        *(replace(number(name), missing=OFFLINE, fault="busy") for name in GPUS),
        Column(
            name="busy",
            text=COMPUTED,
            value=f"({' + '.join(f'coalesce({name}, 0)' for name in GPUS)}) / nullif({ONLINE}, 0)",
        ),
    ),
    rules=(
        KEY,
        Rule(name="negative_use", bad=f"least({', '.join(GPUS)}) < 0", parts=tuple(f"{name} < 0" for name in GPUS)),
        beyond(GPUS, 1e6, rule="use_beyond_measure"),
    ),
    passing=GPUS,
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


STATUS_OF = {"Pass": Status.COMPLETED, "Failed": Status.FAILED, "Killed": Status.CANCELLED}
ZONE = "America/Los_Angeles"
AS_IS = f"timezone('{ZONE}', naive)"
MACROS = (
    "CREATE MACRO known(t) AS t IS NOT NULL AND t NOT IN ('', 'None', 'null', 'NA')",
    f"CREATE MACRO naive_time(t) AS CASE WHEN known(t) THEN try_strptime(t, '{LOCAL_TIME}') END",
    f"""CREATE MACRO first_meaning(naive) AS CASE WHEN timezone('{ZONE}', {AS_IS} - INTERVAL 1 HOUR) = naive
        THEN {AS_IS} - INTERVAL 1 HOUR ELSE {AS_IS} END""",
    f"""CREATE MACRO last_meaning(naive) AS CASE WHEN timezone('{ZONE}', {AS_IS} + INTERVAL 1 HOUR) = naive
        THEN {AS_IS} + INTERVAL 1 HOUR ELSE {AS_IS} END""",
    """CREATE MACRO time_after(naive, earlier) AS CASE WHEN first_meaning(naive) < earlier
        THEN last_meaning(naive) ELSE first_meaning(naive) END""",
)

ATTEMPTS = "STRUCT(start_time VARCHAR, end_time VARCHAR, detail STRUCT(ip VARCHAR, gpus VARCHAR[])[])[]"


def _json_text(name: str) -> Column:
    return text(name, of=f"line->>'$.{name}'")


LOG = RawTable(
    name="log",
    stems=("cluster_job_log",),
    suffixes=("", ".json", ".gz", ".json.gz"),
    archives=ARCHIVES,
    json_array=True,
    required=True,
    feeds="jobs",
    columns=(
        _json_text("jobid"),
        _json_text("vc"),
        _json_text("user"),
        _json_text("status"),
        Column(name="submitted_time", text="line->>'$.submitted_time'", value="first_meaning(naive_time({text}))"),
        Column(
            name="attempts",
            text="nullif(line->>'$.attempts', 'null')",
            value=f"""CASE WHEN json_type(line, '$.attempts') = 'ARRAY'
                AND list_bool_and(list_transform(json_extract(line, '$.attempts[*]'),
                    lambda a: json_type(a) = 'OBJECT')) IS NOT false
                THEN try_cast(line->'$.attempts' AS {ATTEMPTS}) END""",
        ),
        Column(
            name="starts",
            text=COMPUTED,
            value="list_transform(attempts, lambda a: time_after(naive_time(a.start_time), submitted_time))",
        ),
        Column(
            name="ends",
            text=COMPUTED,
            value="list_transform(attempts, lambda a, i: time_after(naive_time(a.end_time), starts[i]))",
        ),
    ),
    key=("jobid",),
    rules=(
        missing("jobid"),
        missing("submitted_time", rule="no_submit_time"),
        missing("status", rule="unknown_status"),
        unlisted("status", STATUS_OF),
        Rule(
            name="unparsable_attempt_time",
            bad="""list_bool_or(list_transform(attempts, lambda a:
                known(a.start_time) AND naive_time(a.start_time) IS NULL
                OR known(a.end_time) AND naive_time(a.end_time) IS NULL))""",
        ),
        Rule(
            name="end_before_start",
            bad="list_bool_or(list_transform(ends, lambda e, i: e < starts[i])) OR ends[-1] < starts[1]",
        ),
        Rule(name="start_before_submit", bad="starts[1] < submitted_time"),
    ),
)

MACHINE_LIST = RawTable(
    name="machine_list",
    stems=("cluster_machine_list",),
    suffixes=SUFFIXES,
    archives=ARCHIVES,
    header=("machineId", "number of GPUs", "single GPU mem"),
    feeds="machines",
    columns=(
        text("machine"),
        count("gpus"),
        Column(name="gpu_mem_gib", value="try_cast(regexp_extract({text}, '^([0-9.]+) ?GB$', 1) AS DOUBLE)"),
    ),
    key=("machine",),
    rules=(
        missing("machine"),
        missing("gpus", rule="no_gpu_count"),
        Rule(name="negative_capacity", bad="gpus < 0 OR gpu_mem_gib < 0"),
        beyond(("gpus", "gpu_mem_gib"), MOST_ASKED, rule="capacity_beyond_measure"),
    ),
)

WAIT_KNOWN = "(EXISTS (SELECT 1 FROM log WHERE starts[1] > submitted_time))"
DURATIONS = "list_transform(ends, lambda e, i: epoch(e - starts[i]))"

JOBS = f"""
WITH latest AS (
    SELECT max(greatest(submitted_time, list_max(starts), list_max(ends))) AS time FROM log
), spans AS (
    SELECT *, coalesce(status <> 'Pass' AND starts[-1] IS NOT NULL AND ends[-1] IS NULL, false) AS running,
        list_sum(list_append({DURATIONS}, CASE WHEN running THEN epoch(latest.time - starts[-1]) END)) AS ran,
        len(list_filter({DURATIONS}, lambda d: d IS NULL)) > 0 AS partly_known,
        attempts[-1].detail AS detail, list_transform(detail, lambda d: d.ip) AS machines
    FROM log, latest
)
SELECT jobid AS job_id, '{ROLE_WHOLE_JOB}' AS role, "user", vc, '{TaskType.OTHER}' AS task_type,
    submitted_time AS submit_ts, starts[1] AS start_ts, ends[-1] AS end_ts,
    CASE WHEN {WAIT_KNOWN} THEN epoch(starts[1] - submitted_time) END AS queue_s,
    ran AS run_s, running OR (partly_known AND ran IS NOT NULL) AS run_s_censored,
    CASE WHEN running THEN '{Status.RUNNING}' ELSE {translated("status", STATUS_OF)} END AS status,
    1 AS instances, list_sum(list_transform(detail, lambda d: len(d.gpus))) AS req_gpus,
    CASE WHEN len(machines) = list_count(machines) THEN list_unique(machines) END AS nodes,
    coalesce(len(attempts), 0) AS attempts
FROM spans
"""

MACHINES = "SELECT machine, gpu_mem_gib, gpus FROM machine_list"

PHILLY = Source(
    name="philly",
    clusters=one_cluster("philly"),
    tables=(LOG, MACHINE_LIST, GPU_UTIL, CPU_UTIL, MEM_UTIL),
    outputs={"jobs": JOBS, "machines": MACHINES, "machine_usage": MACHINE_USAGE},
    macros=MACROS,
    split_by={"machine_usage": "machine"},
    shortcuts={"machine_usage": GPU_USE_ALONE},
    zone=ZONE,
    remarks=(
        Remark(
            text="every job starts when submitted: the queueing delay is unknown, queue_s is null",
            holds=f"NOT {WAIT_KNOWN}",
        ),
    ),
)
