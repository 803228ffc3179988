"""Tiny published traces, written as their publishers write them; the tests spoil them one row at a time."""

import gzip
import io
import json
import tarfile
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

import pytest

PAI_FILES = {
    "pai_task_table.csv": [
        "j1,worker,2.0,Terminated,100000.0,100600.0,600.0,29.296875,50.0,T4",
        "j1,ps,1.0,Failed,100000.0,100500.0,800.0,10.0,,",
        "j2,tensorflow,1.0,Running,100100.0,,100.0,,100.0,MISC",
        "j3,worker,1.0,Waiting,100200.0,,100.0,1.0,25.0,V100M32",
    ],
    "pai_job_table.csv": [
        "j1,i1,u1,Terminated,100000.0,100600.0",
        "j2,i2,u2,Running,100100.0,",
        "j3,i3,u2,Waiting,100200.0,",
    ],
    "pai_group_tag_table.csv": ["i1,u1,T4,g1,ctr", "i2,u2,,g2,"],
    "pai_instance_table.csv": [
        "j1,worker,n1,w1,i1,Terminated,100030.0,100590.0,m1",
        "j1,worker,n2,w2,i1,Terminated,100020.0,100600.0,m2",
        "j1,ps,n3,w3,i1,Failed,100000.0,100500.0,m1",
    ],
    "pai_sensor_table.csv": [
        "j1,worker,w1,i1,m1,/dev/nvidia0,100.0,20.0,2.0,4.0,1.0,2.0,1000.0,10.0,5.0,6.0",
        "j1,worker,w1,i1,m1,/dev/nvidia1,100.0,30.0,2.0,4.0,1.5,2.5,1000.0,10.0,5.0,6.0",
        "j1,worker,w2,i1,m2,/dev/nvidia0,300.0,10.0,4.0,9.0,0.5,1.0,3000.0,30.0,5.0,6.0",
        "j1,ps,w3,i1,m1,,50.0,,1.0,1.5,,,,,,",
    ],
    "pai_machine_spec.csv": ["m1,T4,96,512,2", "m2,CPU,96,512,0"],
    "pai_machine_metric.csv": [
        "w1,m1,100030,100590,0.1,3.0,14.0,80.0,18.0,1000.0,5.0,20.0",
        "w9,m1,100030,100700,0.1,3.0,14.0,40.0,18.0,1000.0,5.0,30.0",
        "w2,m2,100020,100600,0.1,3.0,14.0,,18.0,1000.0,5.0,10.0",
    ],
}

HELIOS_HEADER = "job_id,user,vc,gpu_num,cpu_num,node_num,state,submit_time,start_time,end_time,duration,queue"
HELIOS_LOG = [
    "1,u1,6214e9,8,64,1,COMPLETED,2020-04-01 08:00:00,2020-04-01 08:01:00,2020-04-01 09:01:00,3600,60",
    "2,u2,vcA,1,4,1,TIMEOUT,2020-04-01 08:10:00,2020-04-01 08:10:00,2020-04-02 08:10:00,86400,0",
    "3,u2,vcA,0,4,1,RUNNING,2020-04-01 08:20:00,2020-04-01 08:20:00,2020-04-01 08:20:50,50,0",
]
HELIOS_FILES = {
    "Venus/cluster_log.csv": [HELIOS_HEADER, *HELIOS_LOG],
    "Venus/cluster_gpu_number.csv": ["date,6214e9,vcA,total", "2020-04-01,64,8,72", "2020-04-02,64,16,80"],
    "data/Earth/cluster_log.csv": [HELIOS_HEADER, HELIOS_LOG[0]],
}


def philly_job(jobid: str, *attempts: tuple[str | None, str | None], **fields: object) -> dict[str, object]:
    """Return one job of the log; every attempt ran on two machines with three GPUs in all."""
    detail = [{"ip": "m1", "gpus": ["gpu0", "gpu1"]}, {"ip": "m2", "gpus": ["gpu0"]}]
    spans = [{"start_time": start, "end_time": end, "detail": detail} for start, end in attempts]
    job: dict[str, object] = {"status": "Pass", "vc": "6214e9", "jobid": jobid, "attempts": spans}
    return job | {"submitted_time": "2017-10-03 00:00:00", "user": "ce2f4c"} | fields


PHILLY_JOBS = [
    philly_job("a1", ("2017-10-03 00:01:00", "2017-10-03 00:11:00"), ("2017-10-03 00:20:00", "2017-10-03 01:20:00")),
    philly_job("a2", ("2017-10-03 00:05:00", "None"), status="Failed"),
    philly_job("a3", status="Killed", user=None),
    philly_job("a4", ("", None), status="Killed"),
]
PHILLY_FILES = {
    "cluster_job_log": [json.dumps(PHILLY_JOBS)],
    "cluster_machine_list": ["machineId, number of GPUs, single GPU mem", "m1,2, 12GB", "m2,8, 24GB"],
    "cluster_gpu_util": [
        "time,machineId," + ",".join(f"gpu{i}_util" for i in range(8)),
        "2017-10-03 00:24:00 PDT,m1,80.0,40.0,NA,NA,NA,NA,NA,NA,",
        "2017-10-03 00:25:00 PDT,m1,NA,NA,NA,NA,NA,NA,NA,NA,",
        "2017-11-05 01:30:00 PST,m2," + ",".join(["10.0"] * 8 + ["30.0"] * 8),
    ],
    "cluster_cpu_util": [
        "time,machine_id,cpu_util",
        "2017-10-03 00:24:00 PDT,m1,17.5",
        "2017-11-05 01:30:00 PDT,m2,5",
    ],
    "cluster_mem_util": ["time,machine_id,mem_total,mem_free", "2017-10-03 00:24:00 PDT,m1,528272672.0,132068168.0"],
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Spoiler:
    """One bad row, the file it is added to, and the rule that must catch it."""

    rule: str
    file: str
    row: str


@dataclass(frozen=True, slots=True, kw_only=True)
class PublishedTrace:
    """A tiny published trace: its files by name, which of them are required, and rows that spoil it."""

    source: str
    files: dict[str, list[str]]
    required: tuple[str, ...]
    spoilers: tuple[Spoiler, ...] = field(default=())

    def write(self, folder: Path, spoilers: tuple[Spoiler, ...] = (), *, without: tuple[str, ...] = ()) -> Path:
        """Write the files, each spoiled by its extra rows."""
        folder.mkdir(parents=True, exist_ok=True)
        for name, rows in self.files.items():
            if name in without:
                continue
            extra = [s.row for s in spoilers if s.file == name]
            path = folder / name
            path.parent.mkdir(parents=True, exist_ok=True)
            text = rows[0]
            if text.startswith("["):  # a JSON array: rows are its elements
                path.write_text(", ".join([text[:-1], *extra]) + "]\n")
            else:
                path.write_text("\n".join([*rows, *extra]) + "\n")
        return folder


PAI = PublishedTrace(
    source="pai",
    files=PAI_FILES,
    required=("pai_task_table.csv", "pai_job_table.csv"),
    spoilers=(
        Spoiler(rule="column_count", file="pai_task_table.csv", row="j4,worker,1.0"),
        Spoiler(rule="missing_key", file="pai_task_table.csv", row=",worker,1.0,Terminated,1.0,2.0,1.0,1.0,1.0,T4"),
        Spoiler(rule="unknown_status", file="pai_task_table.csv", row="j4,worker,1.0,Exploded,1.0,2.0,1.0,1.0,1.0,T4"),
        Spoiler(rule="unknown_status", file="pai_task_table.csv", row="j4,worker,1.0,,1.0,2.0,1.0,1.0,1.0,T4"),
        Spoiler(rule="unparsable_plan_cpu", file="pai_task_table.csv", row="j4,w,1.0,Failed,1.0,2.0,six,1.0,1.0,T4"),
        Spoiler(rule="unparsable_plan_cpu", file="pai_task_table.csv", row="j4,w,1.0,Failed,1.0,2.0,inf,1.0,1.0,T4"),
        Spoiler(rule="unparsable_inst_num", file="pai_task_table.csv", row="j4,w,1.5,Failed,1.0,2.0,6.0,1.0,1.0,T4"),
        Spoiler(rule="no_submit_time", file="pai_task_table.csv", row="j4,w,1.0,Failed,,2.0,6.0,1.0,1.0,T4"),
        Spoiler(rule="no_instances", file="pai_task_table.csv", row="j4,w,0.0,Failed,1.0,2.0,6.0,1.0,1.0,T4"),
        Spoiler(rule="negative_request", file="pai_task_table.csv", row="j4,w,1.0,Failed,1.0,2.0,-6.0,1.0,1.0,T4"),
        *(
            Spoiler(rule="request_beyond_measure", file="pai_task_table.csv", row=f"j4,w{i},{row},1.0,T4")
            for i, row in enumerate(("1.0,Failed,1.0,2.0,1e300,1.0", "1.0,Failed,1.0,2.0,,1e9", "1e9,Failed,1.0,2.0,,"))
        ),
        Spoiler(rule="end_before_start", file="pai_task_table.csv", row="j4,w,1.0,Failed,3.0,2.0,6.0,1.0,1.0,T4"),
        Spoiler(rule="duplicate_key", file="pai_task_table.csv", row="j1,worker,9.0,Failed,1.0,2.0,1.0,1.0,1.0,T4"),
        Spoiler(rule="no_task", file="pai_job_table.csv", row="j9,i9,u1,Terminated,1.0,2.0"),
        Spoiler(rule="no_job", file="pai_group_tag_table.csv", row="i9,u1,,g1,ctr"),
        Spoiler(rule="no_task", file="pai_sensor_table.csv", row="j1,evaluator,w1,i1,m1,,1.0,1.0,1.0,1.0,1.0,1.0,,,,"),
        Spoiler(rule="negative_use", file="pai_sensor_table.csv", row="j1,ps,w4,i1,m1,,-1.0,,,,,,,,,"),
        Spoiler(rule="use_beyond_measure", file="pai_sensor_table.csv", row="j1,ps,w4,i1,m1,,1e9,,,,,,,,,"),
        Spoiler(rule="use_beyond_measure", file="pai_machine_metric.csv", row="w1,m1,9,10,,,,1e9,,,,"),
        Spoiler(
            rule="start_outside_task",
            file="pai_instance_table.csv",
            row="j1,ps,n4,w4,i1,Failed,99999.0,100500.0,m1",
        ),
        Spoiler(rule="capacity_beyond_measure", file="pai_machine_spec.csv", row="m3,T4,1e300,512,2"),
        Spoiler(rule="no_gpu_count", file="pai_machine_spec.csv", row="m3,T4,96,512,"),
        Spoiler(rule="end_before_start", file="pai_machine_metric.csv", row="w1,m1,9,8,,,,,,,,"),
    ),
)

HELIOS = PublishedTrace(
    source="helios",
    files=HELIOS_FILES,
    required=("Venus/cluster_log.csv", "data/Earth/cluster_log.csv"),
    spoilers=(
        Spoiler(rule="column_count", file="Venus/cluster_log.csv", row=HELIOS_LOG[0] + ",9"),
        Spoiler(rule="unknown_status", file="Venus/cluster_log.csv", row=HELIOS_LOG[0].replace("COMPLETED", "DONE")),
        Spoiler(
            rule="unparsable_submit_time", file="Venus/cluster_log.csv", row=HELIOS_LOG[0].replace("08:00:00", "8h")
        ),
        Spoiler(rule="unparsable_gpu_num", file="Venus/cluster_log.csv", row=HELIOS_LOG[0].replace(",8,64", ",x,64")),
        Spoiler(rule="negative_request", file="Venus/cluster_log.csv", row=HELIOS_LOG[0].replace(",8,64", ",-8,64")),
        Spoiler(rule="request_beyond_measure", file="Venus/cluster_log.csv", row=HELIOS_LOG[0].replace(",8,", ",1e9,")),
        Spoiler(
            rule="time_beyond_measure",
            file="Venus/cluster_log.csv",
            row="9,u1,vcA,1,4,1,RUNNING,2020-04-01 08:20:00,2020-04-01 08:20:00,,1e300,0",
        ),
        Spoiler(rule="negative_time", file="Venus/cluster_log.csv", row=HELIOS_LOG[0].replace("3600,60", "3600,-60")),
        Spoiler(
            rule="end_before_start, duration_contradicts_times",
            file="Venus/cluster_log.csv",
            row=HELIOS_LOG[0].replace("09:01", "07:01"),
        ),
        Spoiler(
            rule="start_before_submit, duration_contradicts_times",
            file="Venus/cluster_log.csv",
            row=HELIOS_LOG[0].replace("08:01", "07:59"),
        ),
        Spoiler(
            rule="duration_contradicts_times", file="Venus/cluster_log.csv", row=HELIOS_LOG[0].replace("3600", "7200")
        ),
        Spoiler(rule="duplicate_key", file="Venus/cluster_log.csv", row=HELIOS_LOG[0]),
        Spoiler(rule="total_contradicts_sum", file="Venus/cluster_gpu_number.csv", row="2020-04-03,64,8,99"),
        Spoiler(rule="unparsable_gpus", file="Venus/cluster_gpu_number.csv", row="2020-04-03,64,many,99"),
        Spoiler(rule="unparsable_gpus", file="Venus/cluster_gpu_number.csv", row="2020-04-03,64,-8,56"),
    ),
)


def _spoiled_log(rule: str, job: object) -> Spoiler:
    return Spoiler(rule=rule, file="cluster_job_log", row=json.dumps(job))


PHILLY = PublishedTrace(
    source="philly",
    files=PHILLY_FILES,
    required=("cluster_job_log",),
    spoilers=(
        Spoiler(rule="column_count", file="cluster_machine_list", row="m3,2"),
        Spoiler(rule="capacity_beyond_measure", file="cluster_machine_list", row="m3,8, 1000000000GB"),
        Spoiler(rule="duplicate_key", file="cluster_machine_list", row="m1,8, 24GB"),
        Spoiler(rule="unparsable_gpu_mem_gib", file="cluster_machine_list", row="m3,8, lots"),
        _spoiled_log("missing_key, no_submit_time, unknown_status", 17),
        _spoiled_log("missing_key, no_submit_time", {"status": "Pass"}),
        _spoiled_log("unknown_status", philly_job("b1", status="Lost")),
        _spoiled_log("unknown_status", philly_job("b1", status=None)),
        _spoiled_log("no_submit_time", philly_job("b1", submitted_time="None")),
        _spoiled_log("unparsable_submitted_time", philly_job("b1", submitted_time="yesterday")),
        _spoiled_log("unparsable_attempts", philly_job("b1", attempts="two")),
        _spoiled_log("unparsable_attempts", philly_job("b1", attempts=[1])),
        _spoiled_log("unparsable_attempt_time", philly_job("b1", ("2017-10-03", None))),
        _spoiled_log("end_before_start", philly_job("b1", ("2017-10-03 02:00:00", "2017-10-03 01:00:00"))),
        _spoiled_log("start_before_submit", philly_job("b1", ("2017-10-02 02:00:00", "2017-10-03 01:00:00"))),
        _spoiled_log("duplicate_key", philly_job("a1")),
        Spoiler(rule="column_count", file="cluster_gpu_util", row="2017-10-03 00:24:00 PDT,m1,80.0"),
        Spoiler(rule="unparsable_busy", file="cluster_gpu_util", row="2017-10-03 00:24:00 PDT,m1" + ",x" * 8 + ","),
        Spoiler(rule="unparsable_ts", file="cluster_cpu_util", row="2017-10-03 00:24:00,m1,5.0"),
        Spoiler(rule="unparsable_cpu_util", file="cluster_cpu_util", row="2017-10-03 00:24:00 PDT,m1,0    5.0 Name: x"),
        Spoiler(rule="negative_use", file="cluster_cpu_util", row="2017-10-03 00:24:00 PDT,m1,-5.0"),
        Spoiler(rule="free_above_total", file="cluster_mem_util", row="2017-10-03 00:24:00 PDT,m1,1.0,2.0"),
    ),
)

OPENB_NODES = "openb_node_list_gpu_node.csv"
OPENB_PODS = "openb_pod_list_default.csv"
OPENB_POD = "p9,6000,12288,1,460,,LS,Failed,100,300,200"
OPENB = PublishedTrace(
    source="openb",
    files={
        OPENB_NODES: ["sn,cpu_milli,memory_mib,gpu,model", "n1,64000,262144,2,P100", "n2,96000,786432,8,V100M32"],
        OPENB_PODS: [
            "name,cpu_milli,memory_mib,num_gpu,gpu_milli,gpu_spec,qos,pod_phase,creation_time,deletion_time,scheduled_time",
            "p1,12000,16384,1,1000,,LS,Running,0,1000,0",
            "p2,6000,12288,1,460,V100M16|V100M32|V100M32,LS,Running,10,500,20",
            "p3,8000,30517,0,0,,BE,Pending,30,130,",
            "p4,88000,327680,8,1000,V100M32|P100,Guaranteed,Succeeded,40,1000,45",
            "p5,4000,1024,1,250,,Burstable,Failed,50,70,60",
        ],
    },
    required=(OPENB_NODES, OPENB_PODS),
    spoilers=(
        Spoiler(rule="column_count", file=OPENB_NODES, row="n3,64000,262144,2"),
        Spoiler(rule="missing_key", file=OPENB_NODES, row=",64000,262144,2,P100"),
        Spoiler(rule="no_capacity", file=OPENB_NODES, row="n3,64000,262144,,P100"),
        Spoiler(rule="unparsable_gpu", file=OPENB_NODES, row="n3,64000,262144,1.5,P100"),
        Spoiler(rule="negative_capacity", file=OPENB_NODES, row="n3,-64000,262144,2,P100"),
        Spoiler(rule="capacity_beyond_measure", file=OPENB_NODES, row="n3,64000,1e300,2,P100"),
        Spoiler(rule="duplicate_key", file=OPENB_NODES, row="n1,64000,262144,4,T4"),
        Spoiler(rule="column_count", file=OPENB_PODS, row="p9,6000,12288,1,460"),
        Spoiler(rule="missing_key", file=OPENB_PODS, row=OPENB_POD.replace("p9", "")),
        Spoiler(rule="unparsable_cpu_milli", file=OPENB_PODS, row=OPENB_POD.replace("6000", "six")),
        Spoiler(rule="no_request", file=OPENB_PODS, row=OPENB_POD.replace("460", "")),
        Spoiler(
            rule="negative_request, share_contradicts_gpus",
            file=OPENB_PODS,
            row=OPENB_POD.replace("460", "-460"),
        ),
        Spoiler(rule="request_beyond_measure", file=OPENB_PODS, row=OPENB_POD.replace("6000", "1e300")),
        Spoiler(rule="share_contradicts_gpus", file=OPENB_PODS, row=OPENB_POD.replace("1,460", "2,460")),
        Spoiler(rule="share_contradicts_gpus", file=OPENB_PODS, row=OPENB_POD.replace("1,460", "1,1001")),
        Spoiler(rule="share_contradicts_gpus", file=OPENB_PODS, row=OPENB_POD.replace("1,460", "0,460")),
        Spoiler(rule="no_submit_time", file=OPENB_PODS, row=OPENB_POD.replace("100,300", ",300")),
        Spoiler(rule="unknown_status", file=OPENB_PODS, row=OPENB_POD.replace("Failed", "Lost")),
        Spoiler(rule="unknown_status", file=OPENB_PODS, row=OPENB_POD.replace("Failed", "")),
        Spoiler(rule="start_before_submit", file=OPENB_PODS, row=OPENB_POD.replace("200", "99")),
        Spoiler(rule="end_before_start", file=OPENB_PODS, row=OPENB_POD.replace("300", "199")),
        Spoiler(rule="duplicate_key", file=OPENB_PODS, row=OPENB_POD.replace("p9", "p1")),
    ),
)

PUBLISHED = {trace.source: trace for trace in (PAI, HELIOS, PHILLY, OPENB)}


@pytest.fixture(scope="session")
def published() -> dict[str, PublishedTrace]:
    """Return the tiny published traces by source."""
    return PUBLISHED


@pytest.fixture
def job() -> Callable[..., dict[str, object]]:
    """Return the maker of one job of the Philly log."""
    return philly_job


@pytest.fixture
def tar_gz() -> Callable[[Path, dict[str, bytes]], Path]:
    """Return a maker of `.tar.gz` archives from member names and contents."""

    def make(path: Path, members: dict[str, bytes]) -> Path:
        with gzip.open(path, "wb") as packed, tarfile.open(fileobj=packed, mode="w|") as archive:
            for name, content in members.items():
                info = tarfile.TarInfo(name)
                info.size = len(content)
                archive.addfile(info, io.BytesIO(content))
        return path

    return make


WHOLE = {"test_ingest.py", "test_lake.py", "test_lake_faults.py", "test_sql.py", "test_views.py"}
"""Files that test what `quick` leaves out."""


@pytest.fixture(autouse=True)
def quick(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Leave out, many hundred times, waiting for the disk and the file of the views: half of a small ingest."""
    if request.path.name not in WHOLE:
        monkeypatch.setattr("pipelines.lake.storage._flush", lambda _: None)
        monkeypatch.setattr("pipelines.lake.lake.Lake.refresh_views", lambda _: None)
