"""What could run beside running jobs: Slurm's texts read, unknown use left unknown, room added up, the ledger kept."""

import json
from collections.abc import Callable, Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from modelserve.contract.reservations import Reserved, RunningJob
from modelserve.errors import ClientError
from pipelines.connect.ledger import Ledger
from pipelines.connect.slurm import reclaim
from pipelines.connect.slurm.queue import JOB_FIELDS, read_nodes, read_queue
from pipelines.connect.slurm.reclaim import SlurmReclaimer
from pipelines.errors import ConnectError, SourceError

NOW = datetime(2026, 11, 23, 12, 0, tzinfo=UTC)
JOB = {
    "JobID": "7", "JobArrayID": "7", "Cluster": "taut", "State": "RUNNING", "Reason": "None", "Partition": "gpu",
    "UserName": "anna", "NumNodes": "1", "tres-alloc": "cpu=60,mem=200G,node=1,gres/gpu=1,gres/gpu:t4=1",
    "StartTime": "2026-11-23T11:50:00", "NodeList": "n1", "ReqNodes": "", "Feature": "(null)", "OverSubscribe": "OK",
    "RestartCnt": "0", "NumTasks": "1", "Comment": "(null)", "Name": "train",
}  # fmt: skip
WAITS = {**JOB, "JobID": "8", "JobArrayID": "8_[0-3]", "State": "PENDING", "Reason": "Resources", "NodeList": ""}
NODES = (
    "NodeName=n1 CPUAlloc=60 CPUTot=64 OS=Linux 6.1 #1 SMP RealMemory=512000 State=MIXED Partitions=gpu,test  "
    "CfgTRES=cpu=64,mem=500G,billing=64,gres/gpu=4,gres/gpu:t4=4 AllocTRES=cpu=60\n"
    "NodeName=n2 CPUTot=64 RealMemory=512000 State=IDLE+DRAIN Partitions=gpu CfgTRES=cpu=64,mem=500G\n"
)


def queue(*rows: dict[str, str]) -> str:
    return "".join("\x1f".join(row[name] for name in JOB_FIELDS) + "\x1f\n" for row in rows)


def hosts(text: str) -> tuple[str, ...]:
    return {"n[1-2]": ("n1", "n2")}.get(text, (text,) if text else ())


def steps(**cpu_s: int) -> str:
    rows = (f"7.{name.strip('_')}|1|n1|1048576K|cpu=00:00:{spent:02},mem=1048576K" for name, spent in cpu_s.items())
    return "sstat: error: No steps running for job 9\n" + "\n".join(rows)


class Service:
    """Reserves half of each CPU request and 2 GiB for every job with a sample, and keeps what it was sent."""

    def __init__(self) -> None:
        self.jobs: list[RunningJob] = []

    def reservations(self, jobs: Sequence[RunningJob]) -> list[Reserved]:
        self.jobs = list(jobs)
        return [self._answer(each) for each in jobs]

    def _answer(self, job: RunningJob) -> Reserved:
        request, measured = job.request, job.samples is not None
        none: dict[str, Any] = {"cpu_cores": None, "gpus": None, "mem_gib": None, "gpu_mem_gpus": None}
        share = 0.5 if measured else 1.0
        return Reserved.model_validate(
            {
                "job_id": job.job_id, "mode": "observe", "note": None, "refused": (),
                "request": {"cpu_cores": request.cpu_cores, "mem_gib": request.mem_gib, "gpus": request.gpus},
                "mean": {"cpu_cores": (request.cpu_cores or 0) * share, "gpus": request.gpus},
                "spread": {"cpu_cores": 1.0 if measured else 0.0, "gpus": 0.0},
                "memory": {"mem_gib": 2.0 if measured else request.mem_gib, "gpu_mem_gpus": None, "gpu_mem_gib": None},
                "reason": "measured" if measured else "probation",
                "statistics": {**none, "count": int(measured), "at_s": job.age_s if measured else None},
            }
        )  # fmt: skip


Reads = Callable[..., SlurmReclaimer]


@pytest.fixture
def reads(monkeypatch: pytest.MonkeyPatch) -> Reads:
    """Return a function that lets the rounds read other texts of Slurm's."""
    service = Service()
    reclaimer = SlurmReclaimer(client=service, trace="slurm")  # type: ignore[arg-type]  # has what is called

    def read(jobs: str, running_steps: str) -> SlurmReclaimer:
        monkeypatch.setattr(reclaim, "fresh_separator", lambda: "\x1f")
        monkeypatch.setattr(reclaim, "queue_text", lambda _: jobs)
        monkeypatch.setattr(reclaim, "nodes_text", lambda: NODES)
        monkeypatch.setattr(reclaim, "steps_text", lambda numbers: running_steps)
        monkeypatch.setattr(reclaim, "hosts_in", hosts)
        return reclaimer

    return read


def sample(reclaimer: SlurmReclaimer) -> tuple[float, float] | None:
    """Return the CPU cores and GiB that the last round sent of its only job."""
    [job] = reclaimer.client.jobs  # type: ignore[attr-defined]  # of the stand-in
    if job.samples is None:
        return None
    return job.samples.cpu_cores[0], job.samples.mem_gib[0]


def test_a_job_is_read_with_one_machines_part_of_its_request() -> None:
    wide = {**JOB, "NumNodes": "2", "NodeList": "n[1-2]", "RestartCnt": "1", "Comment": "taut=off"}
    held = {**WAITS, "Reason": "Dependency", "Partition": "gpu,test", "ReqNodes": "n2"}
    first, second, third = read_queue(queue(wide, WAITS, held), hosts, "\x1f")
    assert (first.run_id, first.group, first.gpu_type) == ("7@1795434600", "anna/train", "t4")
    assert (first.hosts, first.asked.cpu_cores, first.asked.mem_gib, first.asked.gpus) == (("n1", "n2"), 30, 100, 0.5)
    assert (first.restarted, first.opted_out, first.ready) == (True, True, False)
    assert (second.ready, second.start, second.hosts, second.number) == (True, None, (), "8_[0-3]")
    assert (third.ready, third.wanted, third.partitions) == (False, {"n2"}, {"gpu", "test"})
    assert [(node.name, node.up, node.cpu_cores, node.mem_gib, node.gpus) for node in read_nodes(NODES)] == [
        ("n1", True, 64, 500, 4), ("n2", False, 64, 500, 0)
    ]  # fmt: skip
    with pytest.raises(SourceError, match="3 fields, expected 18"):
        read_queue("7\x1f7\x1ftaut\x1f\n", hosts, "\x1f")


def test_use_is_what_was_spent_since_the_last_round(reads: Reads) -> None:
    reads(queue(JOB), steps(batch=30, _0=6)).round(NOW)
    reclaimer = reads(queue(JOB), steps(batch=36, _0=18, _1=12))
    reclaimer.round(NOW + timedelta(seconds=60))
    assert sample(reclaimer) == (0.5, 3.0)


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ({"batch": 30, "_0": 6}, {"batch": 30}),  # a step ended
        ({"batch": 30, "_0": 6}, {"batch": 30, "_0": 9, "_2": 4}),  # one began and ended
        ({}, {"batch": 30, "_5": 4}),  # as above, before the first round
        ({"batch": 30}, {}),
    ],
)
def test_use_of_steps_that_ended_is_unknown_and_so_the_request_stands(
    reads: Reads, before: dict[str, int], after: dict[str, int]
) -> None:
    reads(queue(JOB), steps(**before)).round(NOW)
    reclaimer = reads(queue(JOB), steps(**after))
    rows = reclaimer.round(NOW + timedelta(seconds=60))
    assert sample(reclaimer) is None
    assert rows[0]["cpus_reserved"] == 60.0


def test_a_waiting_job_fits_beside_what_is_reserved_on_nodes_that_take_jobs(reads: Reads) -> None:
    asks = {"tres-alloc": "cpu=32,mem=400G,node=1"}
    rows = reads(queue(JOB, {**WAITS, **asks}, {**WAITS, **asks}), steps(batch=30)).round(NOW)
    first, second, *waiting = rows
    z = 1.28
    assert (first["cpus_given"], first["cpus_reserved"], first["mem_reserved_gib"]) == (60, pytest.approx(30 + z), 2)
    assert (second["open"], second["cpus_room"], second["mem_given_gib"]) == (False, 64, 0)
    assert [row["name"] for row in waiting] == ["8_[0-3]"]  # the second no longer fits
    assert (waiting[0]["fits_on"], waiting[0]["shares"]) == ("n1", "cpus memory")


@pytest.mark.parametrize(
    "change",
    [
        {"tres-alloc": "cpu=33,mem=1G,node=1"},
        {"tres-alloc": "cpu=1,mem=499G,node=1"},
        {"tres-alloc": "cpu=1,mem=1G,node=1,gres/gpu=4"},
        {"tres-alloc": "cpu=2,mem=1G,node=2", "NumNodes": "2"},
        {"tres-alloc": "cpu=1,mem=1G,node=1", "ReqNodes": "n2"},
        {"tres-alloc": "cpu=1,mem=1G,node=1", "Partition": "other"},
        {"tres-alloc": "cpu=1,mem=1G,node=1", "OverSubscribe": "NO"},
        {"tres-alloc": "cpu=1,mem=1G,node=1", "Feature": "a100"},
    ],
)
def test_a_waiting_job_that_does_not_fit_is_not_listed(reads: Reads, change: dict[str, str]) -> None:
    rows = reads(queue(JOB, {**WAITS, **change}), steps(batch=30)).round(NOW)
    assert [row["kind"] for row in rows] == ["node", "node"]


def test_a_saturated_node_and_one_of_an_exclusive_job_are_closed(reads: Reads) -> None:
    small = {**WAITS, "tres-alloc": "cpu=1,mem=1G,node=1"}
    reads(queue(JOB), steps(batch=0)).round(NOW)
    busy = reads(queue(JOB, small), steps(batch=59)).round(NOW + timedelta(seconds=0.95))
    assert [row["open"] for row in busy] == [False, False]
    assert not reads(queue(JOB), steps(batch=59)).round(NOW + timedelta(seconds=590))[0]["open"]
    assert reads(queue(JOB), steps(batch=59)).round(NOW + timedelta(seconds=700))[0]["open"]
    assert not reads(queue({**JOB, "OverSubscribe": "NO"}), steps(batch=59)).round(NOW + timedelta(seconds=760))[0][
        "open"
    ]


def test_a_job_with_gpus_is_measured_only_with_its_gpus(reads: Reads) -> None:
    reclaimer = reads(queue(JOB), steps(batch=30))
    reclaimer.exported = dict
    reclaimer.round(NOW)
    assert sample(reclaimer) is None
    reclaimer.exported = lambda: {"7": {"gpus": 0.25, "gpu_mem_gib": 4.0, "cpu_cores": 3.0}}
    reclaimer.round(NOW + timedelta(seconds=60))
    assert sample(reclaimer) == (3.0, 1.0)


def test_the_ledger_survives_a_restart_and_forgets_what_ended(reads: Reads, tmp_path: Path) -> None:
    path = tmp_path / "new" / "ledger.json"
    reclaimer = reads(queue(JOB), steps(batch=30))
    reclaimer.round(NOW)
    reclaimer.ledger.write(path)
    assert [each.name for each in path.parent.iterdir()] == ["ledger.json"]
    assert Ledger.read(path) == reclaimer.ledger
    assert Ledger.read(path).known("7@1795434600").counters == {"batch": 30.0}
    reads(queue(WAITS), "").round(NOW)
    assert reclaimer.ledger == Ledger()


def test_a_failing_service_leaves_the_ledger_as_it_was(reads: Reads, monkeypatch: pytest.MonkeyPatch) -> None:
    reclaimer = reads(queue(JOB), steps(batch=30))
    reclaimer.round(NOW)
    before = reclaimer.ledger.model_copy(deep=True)

    def fails(jobs: Sequence[RunningJob]) -> list[Reserved]:
        raise ClientError("away")

    monkeypatch.setattr(reclaimer.client, "reservations", fails)
    with pytest.raises(ClientError):
        reclaimer.round(NOW + timedelta(seconds=60))
    assert reclaimer.ledger == before


@pytest.mark.parametrize("content", [b"", b"[]", b"\xff", json.dumps({"accounts": {"7": {"code": 1}}}).encode()])
def test_a_file_that_is_no_ledger_is_named_with_the_cure(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "ledger.json"
    path.write_bytes(content)
    with pytest.raises(ConnectError, match="it is no ledger; remove it to begin anew"):
        Ledger.read(path)
    with pytest.raises(ConnectError, match="may be written"):
        Ledger().write(path / "below")


def test_a_ledger_beyond_all_measure_is_not_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("pipelines.connect.ledger.MOST_BYTES", 10)
    path = tmp_path / "ledger.json"
    path.write_text('{"accounts": {}}')
    with pytest.raises(ConnectError, match="remove it to begin anew"):
        Ledger.read(path)
