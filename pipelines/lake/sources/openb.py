"""Alibaba openb (cluster-trace-gpu-v2023): one list of GPU nodes and several pod lists, each read as one cluster.

Source names and units (milli-CPU, MiB, thousandths of a GPU) are converted by the SQL declared here.

Notes
-----
A cluster is named after its pod list (`openb_pod_list_default.csv` is `default`) and has all GPU nodes. Clusters are
alternative workloads of the same nodes: they are never added up, and `default` represents the trace. Times are seconds
from the trace's start, stored as Unix time. Lists with five columns have no times: their pods are submitted at zero and
have no run time. `pod_phase` is the last observed state. A pod last observed running counts as still running if its
deletion time is the latest in the list; if it was deleted earlier, its status is unknown (null). A pod deleted while
waiting counts as cancelled. The list of all nodes, including CPU-only nodes, and the column `qos` are not read.
"""

from features.vocabulary import GPU_MEM_GIB_OF_TYPE, ROLE_WHOLE_JOB, Status, TaskType
from pipelines.lake.sources.source import (
    CLUSTER,
    MOST_ASKED,
    RawTable,
    Remark,
    Rule,
    Source,
    beyond,
    clusters_by_file,
    columns,
    count,
    missing,
    negative,
    translated,
    unlisted,
)

FIELDS_WITHOUT_TIMES = 5
STATUS_OF = {
    "Succeeded": Status.COMPLETED,
    "Failed": Status.FAILED,
    "Running": Status.RUNNING,
    "Pending": Status.WAITING,
}


NODE = RawTable(
    name="node",
    stems=("openb_node_list_gpu_node",),
    required=True,
    feeds="machines",
    header=("sn", "cpu_milli", "memory_mib", "gpu", "model"),
    columns=columns("sn text, cpu_milli number, memory_mib number, gpu count, model text"),
    key=("sn",),
    rules=(
        missing("sn"),
        missing("cpu_milli", "memory_mib", "gpu", rule="no_capacity"),
        negative("cpu_milli", "memory_mib", "gpu", rule="negative_capacity"),
        beyond(("cpu_milli / 1000", "memory_mib / 1024", "gpu"), MOST_ASKED, rule="capacity_beyond_measure"),
    ),
)

POD = RawTable(
    name="pod",
    stems=(f"openb_pod_list_{CLUSTER}",),
    required=True,
    feeds="jobs",
    header=("name", "cpu_milli", "memory_mib", "num_gpu", "gpu_milli", "*"),
    columns=(
        *columns(
            "name text, cpu_milli number, memory_mib number, num_gpu count, gpu_milli count, gpu_spec text, qos text, "
            "pod_phase text, creation_time seconds, deletion_time seconds, scheduled_time seconds"
        ),
        count("fields", of="len(f)::VARCHAR"),
    ),
    key=("name",),
    rules=(
        missing("name"),
        missing("cpu_milli", "memory_mib", "num_gpu", "gpu_milli", rule="no_request"),
        negative("cpu_milli", "memory_mib", "num_gpu", "gpu_milli", rule="negative_request"),
        beyond(("cpu_milli / 1000", "memory_mib / 1024", "num_gpu"), MOST_ASKED, rule="request_beyond_measure"),
        # A pod requests a fraction of one GPU, or several whole GPUs.
        Rule(
            name="share_contradicts_gpus",
            bad="""CASE WHEN num_gpu = 0 THEN gpu_milli <> 0
                WHEN num_gpu = 1 THEN gpu_milli NOT BETWEEN 1 AND 1000 ELSE gpu_milli <> 1000 END""",
        ),
        Rule(name="no_submit_time", bad=f"fields > {FIELDS_WITHOUT_TIMES} AND creation_time IS NULL"),
        Rule(name="unknown_status", bad=f"fields > {FIELDS_WITHOUT_TIMES} AND pod_phase IS NULL"),
        unlisted("pod_phase", STATUS_OF),
        Rule(name="start_before_submit", bad="scheduled_time < creation_time"),
        Rule(name="end_before_start", bad="deletion_time < coalesce(scheduled_time, creation_time)"),
    ),
)

LATEST = "(SELECT max(deletion_time) FROM pod)"
STAYS = f"coalesce(deletion_time = {LATEST}, true)"
RUNS_ON = f"(pod_phase = 'Running' AND {STAYS})"
STATUS = f"""CASE WHEN pod_phase = 'Running' AND NOT {STAYS} THEN NULL
    WHEN pod_phase = 'Pending' AND NOT {STAYS} THEN '{Status.CANCELLED}'
    ELSE {translated("pod_phase", STATUS_OF)} END"""

JOBS = f"""
SELECT name AS job_id, '{ROLE_WHOLE_JOB}' AS role, '{TaskType.OTHER}' AS task_type,
    array_to_string(list_sort(list_distinct(string_split(gpu_spec, '|'))), '|') AS gpu_type,
    to_timestamp(coalesce(creation_time, 0)) AS submit_ts, to_timestamp(scheduled_time) AS start_ts,
    CASE WHEN NOT {STAYS} OR pod_phase IN ('Succeeded', 'Failed') THEN to_timestamp(deletion_time) END AS end_ts,
    scheduled_time - creation_time AS queue_s,
    coalesce(deletion_time, {LATEST}) - scheduled_time AS run_s,
    coalesce({RUNS_ON}, false) AS run_s_censored,
    {STATUS} AS status,
    1 AS instances,
    cpu_milli / 1000 AS req_cpu_cores, memory_mib / 1024 AS req_mem_gib, num_gpu * gpu_milli / 1000 AS req_gpus
FROM pod
"""

MACHINES = f"""
SELECT sn AS machine, model AS gpu_type, cpu_milli / 1000 AS cpu_cores, memory_mib / 1024 AS mem_gib, gpu AS gpus,
    CAST({translated("model", GPU_MEM_GIB_OF_TYPE)} AS DOUBLE) AS gpu_mem_gib
FROM node
"""

OPENB = Source(
    name="openb",
    clusters=clusters_by_file(POD.stems[0], below=("csv", ""), suffixes=POD.suffixes),
    tables=(NODE, POD),
    outputs={"jobs": JOBS, "machines": MACHINES},
    representative="default",
    remarks=(
        Remark(
            text="the list has no times: every pod is submitted at the trace's zero; run time and status are null",
            holds="(SELECT bool_and(creation_time IS NULL) FROM pod)",
        ),
        Remark(
            text="pods last seen running were deleted before the trace ends: how they ended is unknown, status is null",
            holds=f"EXISTS (SELECT 1 FROM pod WHERE pod_phase = 'Running' AND NOT {STAYS})",
        ),
    ),
)
