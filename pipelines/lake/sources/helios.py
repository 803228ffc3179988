"""SenseTime Helios: per cluster, a Slurm log and a table of each virtual cluster's number of GPUs by date.

Source names and Shanghai local time are converted by the SQL declared here; no file is read here.

Notes
-----
Every folder with a `cluster_log.csv` is a cluster, directly below the given folder or below its `data/`.
The column `total` of the capacity file is the sum over virtual clusters; a rule checks it, and it is not stored.
If at least 20 rows and 0.1 % of the log have the longest run time, the log was cut off at that run time, which is then
only a lower bound for these jobs. If the log has no states, status is null. Suspended jobs count as running.
"""

from features.vocabulary import ROLE_WHOLE_JOB, Status, TaskType
from pipelines.lake.sources.source import (
    CLUSTER,
    MOST_ASKED,
    MOST_SPAN_S,
    Column,
    RawTable,
    Remark,
    Rule,
    Source,
    beyond,
    clusters_by_file,
    columns,
    count,
    local_time,
    missing,
    negative,
    translated,
    unlisted,
)

ZONE = "Asia/Shanghai"
STATUS_OF = {
    "COMPLETED": Status.COMPLETED,
    "CANCELLED": Status.CANCELLED,
    "FAILED": Status.FAILED,
    "TIMEOUT": Status.TIMEOUT,
    "NODE_FAIL": Status.NODE_FAIL,
    "RUNNING": Status.RUNNING,
    "SUSPENDED": Status.RUNNING,
    "PENDING": Status.WAITING,
}


LOG = RawTable(
    name="log",
    stems=(f"{CLUSTER}/cluster_log",),
    required=True,
    feeds="jobs",
    header=(
        *("job_id", "user", "vc", "gpu_num", "cpu_num", "node_num", "state"),
        *("submit_time", "start_time", "end_time", "duration", "queue"),
    ),
    columns=(
        *columns("job_id text, user text, vc text, gpu_num count, cpu_num count, node_num count, state text"),
        *(local_time(name, ZONE) for name in ("submit_time", "start_time", "end_time")),
        *columns("duration number, queue number"),
    ),
    key=("job_id",),
    rules=(
        missing("job_id"),
        missing("submit_time", rule="no_submit_time"),
        unlisted("state", STATUS_OF),
        negative("gpu_num", "cpu_num", "node_num", rule="negative_request"),
        beyond(("gpu_num", "cpu_num", "node_num"), MOST_ASKED, rule="request_beyond_measure"),
        negative("duration", "queue", rule="negative_time"),
        beyond(("duration", "queue"), MOST_SPAN_S, rule="time_beyond_measure"),
        Rule(name="end_before_start", bad="end_time < start_time"),
        Rule(name="start_before_submit", bad="start_time < submit_time"),
        Rule(name="duration_contradicts_times", bad="abs(duration - epoch(end_time - start_time)) > 1"),
    ),
)

GPU_NUMBER = RawTable(
    name="gpu_number",
    stems=(f"{CLUSTER}/cluster_gpu_number",),
    feeds="capacity",
    header=("date", "*", "total"),
    columns=(
        Column(name="date", text="f[1]", value="try_strptime({text}, '%Y-%m-%d')::DATE"),
        Column(
            name="gpus",
            text="array_to_string(f[2:-2], ',')",
            value="""CASE WHEN list_bool_and(list_transform(f[2:-2], lambda x: regexp_full_match(x, '[0-9]{1,9}')))
                THEN list_transform(f[2:-2], lambda x: x::INTEGER) END""",
        ),
        count("total", of="f[-1]"),
    ),
    key=("date",),
    rules=(
        missing("date", rule="missing_key"),
        missing("gpus", rule="no_gpu_count"),
        Rule(name="total_contradicts_sum", bad="total <> list_sum(gpus)"),
    ),
)

MOST = "(SELECT max(duration) FROM log)"
CLAMPED_AT = f"""(SELECT {MOST} FROM log WHERE duration = {MOST}
    HAVING count(*) >= greatest(20, 0.001 * (SELECT count(*) FROM log)))"""
WAIT_KNOWN = "(EXISTS (SELECT 1 FROM log WHERE start_time > submit_time OR queue > 0))"

JOBS = f"""
SELECT job_id, '{ROLE_WHOLE_JOB}' AS role, "user", vc, '{TaskType.OTHER}' AS task_type,
    submit_time AS submit_ts, start_time AS start_ts,
    CASE WHEN coalesce(state, '') NOT IN ('RUNNING', 'SUSPENDED', 'PENDING') THEN end_time END AS end_ts,
    CASE WHEN {WAIT_KNOWN} THEN coalesce(queue, epoch(start_time - submit_time)) END AS queue_s,
    coalesce(duration, epoch(end_time - start_time)) AS run_s,
    coalesce(state IN ('RUNNING', 'SUSPENDED', 'TIMEOUT'), false) OR coalesce(duration = {CLAMPED_AT}, false)
        AS run_s_censored,
    {translated("state", STATUS_OF)} AS status,
    1 AS instances, cpu_num AS req_cpu_cores, gpu_num AS req_gpus, node_num AS nodes
FROM log
"""

CAPACITY = """
SELECT unnest(names[2:-2]) AS vc, date, unnest(gpus) AS gpus FROM gpu_number, gpu_number_header
"""

HELIOS = Source(
    name="helios",
    clusters=clusters_by_file(LOG.stems[0], below=("data", ""), suffixes=LOG.suffixes),
    tables=(LOG, GPU_NUMBER),
    outputs={"jobs": JOBS, "capacity": CAPACITY},
    zone=ZONE,
    remarks=(
        Remark(
            text="every job starts when submitted: the queueing delay is unknown, queue_s is null",
            holds=f"NOT {WAIT_KNOWN}",
        ),
        Remark(
            text="many jobs share the longest run time: run times were cut off there and are lower bounds",
            holds=f"{CLAMPED_AT} IS NOT NULL",
        ),
        Remark(
            text="some jobs have no state: their status is null", holds="EXISTS (SELECT 1 FROM log WHERE state IS NULL)"
        ),
    ),
)
