"""Alibaba PAI (cluster-trace-gpu-v2020): seven tables without header, each plain, gzipped or in its own `.tar.gz`.

Source names and units (percent of a core) are converted by the SQL declared here; no file is read here.

Notes
-----
A canonical job is a PAI task. Its submission time is the task's start time, because the trace records no wait before
it; its start is that of its earliest instance; its use comes from its sensor rows. The publisher shifted all times.
Read as Unix times in Asia/Shanghai, they have the true hour and weekday; they are stored as such. The run time of a
running task ends at the latest time in the task table and is a lower bound.
"""

from features.vocabulary import GPU_MEM_GIB_OF_TYPE, TASK_TYPE_OF_WORKLOAD, Status, TaskType
from pipelines.lake.sources.source import (
    MOST_ASKED,
    MOST_INSTANCES,
    RawTable,
    Remark,
    Rule,
    Source,
    beyond,
    columns,
    missing,
    negative,
    number,
    one_cluster,
    translated,
    unlisted,
)

ZONE = "Asia/Shanghai"
STATUS_OF = {
    "Terminated": Status.COMPLETED,
    "Failed": Status.FAILED,
    "Running": Status.RUNNING,
    "Waiting": Status.WAITING,
}
SUFFIXES = (".csv", ".csv.gz", ".tar.gz")

STATE = (
    missing("status", rule="unknown_status"),
    unlisted("status", STATUS_OF),
    Rule(name="end_before_start", bad="status IN ('Terminated', 'Failed') AND end_time < start_time"),
)
NO_TASK = Rule(
    name="no_task",
    bad="NOT EXISTS (SELECT 1 FROM task t WHERE t.job_name = r.job_name AND t.task_name = r.task_name)",
)

TASK = RawTable(
    name="task",
    stems=("pai_task_table",),
    suffixes=SUFFIXES,
    required=True,
    feeds="jobs",
    columns=columns(
        "job_name text, task_name text, inst_num count, status text, start_time seconds, end_time seconds, "
        "plan_cpu number, plan_mem number, plan_gpu number, gpu_type text"
    ),
    key=("job_name", "task_name"),
    rules=(
        missing("job_name", "task_name"),
        *STATE,
        missing("start_time", rule="no_submit_time"),
        Rule(name="no_instances", bad="inst_num IS NULL OR inst_num < 1"),
        negative("plan_cpu", "plan_mem", "plan_gpu", rule="negative_request"),
        beyond(("plan_cpu / 100", "plan_mem", "plan_gpu / 100"), MOST_ASKED, rule="request_beyond_measure"),
        beyond(("inst_num",), MOST_INSTANCES, rule="request_beyond_measure"),
    ),
)

JOB = RawTable(
    name="job",
    stems=("pai_job_table",),
    suffixes=SUFFIXES,
    required=True,
    feeds="jobs",
    columns=columns("job_name text, inst_id text, user text, status text, start_time seconds, end_time seconds"),
    key=("job_name",),
    rules=(missing("job_name"), *STATE),
    links=(Rule(name="no_task", bad="NOT EXISTS (SELECT 1 FROM task t WHERE t.job_name = r.job_name)"),),
)

GROUP_TAG = RawTable(
    name="group_tag",
    stems=("pai_group_tag_table",),
    suffixes=SUFFIXES,
    feeds="jobs",
    columns=columns("inst_id text, user text, gpu_type_spec text, group text, workload text"),
    key=("inst_id",),
    rules=(missing("inst_id"),),
    links=(Rule(name="no_job", bad="NOT EXISTS (SELECT 1 FROM job j WHERE j.inst_id = r.inst_id)"),),
)

INSTANCE = RawTable(
    name="instance",
    stems=("pai_instance_table",),
    suffixes=SUFFIXES,
    feeds="jobs",
    columns=columns(
        "job_name text, task_name text, inst_name text, worker_name text, inst_id text, status text, "
        "start_time seconds, end_time seconds, machine text"
    ),
    key=("job_name", "task_name", "inst_name", "worker_name"),
    passing=("inst_name", "worker_name", "inst_id", "status", "end_time", "machine"),
    rules=(missing("job_name", "task_name"), *STATE),
    links=(
        NO_TASK,
        Rule(
            name="start_outside_task",
            bad="""EXISTS (SELECT 1 FROM task t WHERE t.job_name = r.job_name AND t.task_name = r.task_name
                AND (r.start_time < t.start_time OR (t.status <> 'Running' AND r.start_time > t.end_time)))""",
        ),
    ),
)

USED = ("cpu_usage", "gpu_wrk_util", "avg_mem", "max_mem", "avg_gpu_wrk_mem", "max_gpu_wrk_mem")
TRAFFIC = ("read", "write", "read_count", "write_count")
SENSOR = RawTable(
    name="sensor",
    stems=("pai_sensor_table",),
    suffixes=SUFFIXES,
    feeds="usage",
    columns=(
        *columns("job_name text, task_name text, worker_name text, inst_id text, machine text, gpu_name text"),
        *(number(name) for name in (*USED, *TRAFFIC)),
    ),
    key=("job_name", "task_name", "worker_name", "gpu_name"),
    passing=("inst_id", "machine", "read_count", "write_count"),
    rules=(
        missing("job_name", "task_name", "worker_name"),
        negative(*USED, *TRAFFIC, rule="negative_use"),
        beyond(USED, 1e8, rule="use_beyond_measure"),
        beyond(("read", "write"), 1e14, rule="use_beyond_measure"),
    ),
    links=(NO_TASK,),
)

MACHINE_SPEC = RawTable(
    name="machine_spec",
    stems=("pai_machine_spec",),
    suffixes=SUFFIXES,
    feeds="machines",
    columns=columns("machine text, gpu_type text, cap_cpu number, cap_mem number, cap_gpu count"),
    key=("machine",),
    rules=(
        missing("machine"),
        missing("cap_gpu", rule="no_gpu_count"),
        negative("cap_cpu", "cap_mem", "cap_gpu", rule="negative_capacity"),
        beyond(("cap_cpu", "cap_mem", "cap_gpu"), MOST_ASKED, rule="capacity_beyond_measure"),
    ),
)

CPU_BUSY = ("machine_cpu_iowait", "machine_cpu_kernel", "machine_cpu_usr")
OTHER_METRICS = ("machine_load_1", "machine_net_receive", "machine_num_worker")
MACHINE_METRIC = RawTable(
    name="machine_metric",
    stems=("pai_machine_metric",),
    suffixes=SUFFIXES,
    feeds="machine_usage",
    columns=(
        *columns("worker_name text, machine text, start_time seconds, end_time seconds"),
        *(number(name) for name in (*CPU_BUSY, "machine_gpu", *OTHER_METRICS, "machine_cpu")),
    ),
    passing=("worker_name", "end_time", *CPU_BUSY, *OTHER_METRICS),
    rules=(
        missing("machine", "start_time"),
        Rule(name="end_before_start", bad="end_time < start_time"),
        negative("machine_cpu", "machine_gpu", rule="negative_use"),
        beyond(("machine_cpu", "machine_gpu"), 1e8, rule="use_beyond_measure"),
    ),
)

# If every instance starts at its task's start time, the trace does not record waits: they are unknown, not zero.
WAIT_KNOWN = """(EXISTS (SELECT 1 FROM instance i JOIN task t USING (job_name, task_name)
    WHERE i.start_time <> t.start_time))"""

JOBS = f"""
WITH first_instance AS (
    SELECT job_name, task_name, min(start_time) AS start_time FROM instance GROUP BY ALL
), latest AS (
    SELECT max(greatest(start_time, end_time)) AS time FROM task
), placed AS (
    SELECT t.*, j."user" AS owner, g."group" AS tag, g.workload,
        CASE WHEN t.status <> 'Waiting' THEN coalesce(i.start_time, t.start_time) END AS began,
        CASE WHEN t.status IN ('Terminated', 'Failed') THEN t.end_time END AS ended,
        i.start_time IS NOT NULL AND {WAIT_KNOWN} AS wait_known
    FROM task t
    LEFT JOIN job j USING (job_name)
    LEFT JOIN group_tag g ON g.inst_id = j.inst_id
    LEFT JOIN first_instance i ON i.job_name = t.job_name AND i.task_name = t.task_name
)
SELECT job_name AS job_id, task_name AS role, owner AS "user", tag AS "group", workload,
    {translated("workload", TASK_TYPE_OF_WORKLOAD, f"'{TaskType.OTHER}'")} AS task_type,
    gpu_type,
    to_timestamp(start_time) AS submit_ts, to_timestamp(began) AS start_ts, to_timestamp(ended) AS end_ts,
    CASE WHEN wait_known THEN began - start_time END AS queue_s,
    CASE WHEN status = 'Running' THEN latest.time - began ELSE ended - began END AS run_s,
    status = 'Running' AS run_s_censored,
    {translated("status", STATUS_OF)} AS status,
    inst_num AS instances,
    plan_cpu / 100 AS req_cpu_cores, plan_mem AS req_mem_gib, plan_gpu / 100 AS req_gpus
FROM placed, latest
"""

# The sensor table has a row per worker and GPU. Each row repeats the worker's CPU, memory and network values; they are
# taken from the row of its first GPU by name. Sums and means use decimals (nine digits, three for bytes), so that the
# order of rows has no effect.
USAGE = """
WITH worker AS (
    SELECT job_name, task_name, worker_name,
        arg_min(CAST(cpu_usage AS DECIMAL(18, 9)), gpu) AS cpu, arg_min(CAST(avg_mem AS DECIMAL(18, 9)), gpu) AS mem,
        max(max_mem) AS mem_peak,
        arg_min(CAST(read AS DECIMAL(18, 3)), gpu) AS read, arg_min(CAST(write AS DECIMAL(18, 3)), gpu) AS write,
        sum(CAST(gpu_wrk_util AS DECIMAL(18, 9))) AS gpus, sum(CAST(avg_gpu_wrk_mem AS DECIMAL(18, 9))) AS gpu_mem,
        sum(CAST(max_gpu_wrk_mem AS DECIMAL(18, 9)))::DOUBLE AS gpu_mem_peak
    FROM (SELECT *, coalesce(gpu_name, '') AS gpu FROM sensor) GROUP BY ALL
)
SELECT job_name AS job_id, task_name AS role,
    avg(cpu) / 100 AS used_cpu_cores, avg(gpus) / 100 AS used_gpus,
    avg(mem) AS mem_avg_gib, max(mem_peak) AS mem_max_gib,
    avg(gpu_mem) AS gpu_mem_avg_gib, max(gpu_mem_peak) AS gpu_mem_max_gib,
    avg(read) AS net_read_bytes_per_s, avg(write) AS net_write_bytes_per_s,
    count(*) AS instances_measured
FROM worker GROUP BY ALL
"""

MACHINES = f"""
SELECT machine, gpu_type, cap_cpu AS cpu_cores, cap_mem AS mem_gib, cap_gpu AS gpus,
    CAST({translated("gpu_type", GPU_MEM_GIB_OF_TYPE)} AS DOUBLE) AS gpu_mem_gib
FROM machine_spec
"""

# A published row is the machine's mean over the life of one of its workers. GPU use is published as a sum over the
# machine's GPUs, so its fraction is null if the machine's number of GPUs is unknown.
MACHINE_USAGE = """
SELECT m.machine, to_timestamp(m.start_time) AS ts,
    avg(CAST(machine_cpu AS DECIMAL(18, 9))) / 100 AS cpu_frac,
    avg(CAST(machine_gpu AS DECIMAL(18, 9))) / 100 / any_value(nullif(s.cap_gpu, 0)) AS gpu_frac
FROM machine_metric m LEFT JOIN machine_spec s USING (machine) GROUP BY ALL
"""

PAI = Source(
    name="pai",
    clusters=one_cluster("pai"),
    tables=(TASK, JOB, GROUP_TAG, INSTANCE, SENSOR, MACHINE_SPEC, MACHINE_METRIC),
    outputs={"jobs": JOBS, "usage": USAGE, "machines": MACHINES, "machine_usage": MACHINE_USAGE},
    zone=ZONE,
    remarks=(
        Remark(
            text="no instance starts later than its task: the queueing delay is unknown, queue_s is null",
            holds=f"EXISTS (SELECT 1 FROM instance) AND NOT {WAIT_KNOWN}",
        ),
    ),
)
