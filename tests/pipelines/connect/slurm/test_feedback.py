"""Reports of ended jobs: the original request and what was given, each once, and again after a failure."""

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from modelserve.contract.feedback import BrakeHeld, FeedbackAnswer, FeedbackResult, FeedbackRow, RowStatus
from modelserve.errors import ServiceUnavailable
from pipelines.connect.slurm.accounting import EndedJob
from pipelines.connect.slurm.feedback import Reporter, row_of
from tests.pipelines.connect.slurm.test_accounting import JOB, STEP, folded

NOW = datetime(2026, 11, 22, 17, 12, tzinfo=UTC)
SHRUNK = {**JOB, "ReqTRES": "cpu=2,mem=8G,node=1", "AdminComment": "taut f8-1 mem 65536->8192 MiB, cpus-per-task 8->2"}


class Service:
    """A service that stores what it is sent, unless it is down."""

    def __init__(self) -> None:
        self.rows: list[FeedbackRow] = []
        self.down = False
        self.brakes: tuple[BrakeHeld, ...] = ()

    def feedback(self, rows: Sequence[FeedbackRow], *, trace: str) -> FeedbackAnswer:
        if self.down:
            raise ServiceUnavailable("down")
        results = [self._status(row) for row in rows]
        self.rows += [row for row, result in zip(rows, results, strict=True) if result == "accepted"]
        return FeedbackAnswer(
            accepted=results.count("accepted"),
            duplicates=results.count("duplicate"),
            conflicts=results.count("conflict"),
            results=tuple(FeedbackResult(job_id=r.job_id, status=s) for r, s in zip(rows, results, strict=True)),
            brakes=self.brakes,
        )

    def _status(self, row: FeedbackRow) -> RowStatus:
        held = [each for each in self.rows if each.job_id == row.job_id]
        if row in held:
            return "duplicate"
        killed = row.outcome == "oom" and all(each.outcome != "oom" for each in held)
        return "accepted" if not held or killed else "conflict"


class Windows:
    """Accounting that returns the same jobs for every window, and keeps the windows."""

    def __init__(self, *jobs: EndedJob) -> None:
        self.jobs, self.asked = list(jobs), list[tuple[datetime, datetime]]()

    def __call__(self, since: datetime, until: datetime) -> list[EndedJob]:
        self.asked.append((since, until))
        return self.jobs


def reporter(folder: Path, service: Service, windows: Windows, log: list[str] | None = None) -> Reporter:
    say = (log if log is not None else []).append
    return Reporter(client=service, jobs=windows, trace="slurm", state=folder / "state", say=say)  # type: ignore[arg-type]


def test_a_report_holds_what_was_asked_given_and_used() -> None:
    row = row_of(folded(SHRUNK, STEP)[0])
    assert (row.request.cpu_cores, row.request.mem_gib) == (8.0, 64.0)
    assert row.allocation is not None
    assert (row.allocation.cpu_cores, row.allocation.mem_gib) == (2.0, 8.0)
    assert (row.answer_id, row.outcome, row.used.mem_max_gib) == ("f8-1", "completed", 1.0)


def test_each_job_is_posted_once_though_windows_overlap(tmp_path: Path) -> None:
    service, windows = Service(), Windows(*folded(JOB, STEP))
    one = reporter(tmp_path, service, windows)
    assert [one.poll(NOW + timedelta(seconds=5 * i)) for i in range(3)] == [1, 0, 0]
    assert len(service.rows) == 1
    assert windows.asked[1][0] < NOW < windows.asked[1][1]


def test_a_job_is_posted_again_when_it_turns_out_to_have_run_out_of_memory(tmp_path: Path) -> None:
    failed = {**JOB, "State": "FAILED"}
    service, windows = Service(), Windows(*folded(failed, STEP))
    one = reporter(tmp_path, service, windows)
    one.poll(NOW)
    windows.jobs[:] = folded(failed, {**STEP, "State": "OUT_OF_MEMORY"})
    for seconds in (5, 10):
        one.poll(NOW + timedelta(seconds=seconds))
    assert [row.outcome for row in service.rows] == ["failed", "oom"]


def test_harm_to_shrunk_jobs_and_new_brakes_are_said_once(tmp_path: Path) -> None:
    service, log = Service(), list[str]()
    service.brakes = (
        BrakeHeld(
            trace="slurm", cluster="c", task_type="other", user=None, group="ada/train", why="3 killed", since=NOW
        ),
    )
    killed = {**SHRUNK, "State": "OUT_OF_MEMORY"}
    one = reporter(tmp_path, service, Windows(*folded(JOB, STEP), *folded({**killed, "JobIDRaw": "69"}, STEP)), log)
    for seconds in (0, 5):
        one.poll(NOW + timedelta(seconds=seconds))
    assert len(log) == 2
    assert log[0].endswith("had 8.00 of the 64.00 GiB that it asked for: oom")
    assert log[1] == "ada/train is not shrunk any more: 3 killed"


def test_a_later_run_of_a_requeued_job_is_reported_by_its_run(tmp_path: Path) -> None:
    again = {**JOB, "Submit": "2026-11-22T17:11:30", "Start": "2026-11-22T17:11:30", "End": "2026-11-22T17:11:59",
             "ElapsedRaw": "29"}  # fmt: skip
    service = Service()
    assert reporter(tmp_path, service, Windows(*folded(JOB, STEP))).poll(NOW) == 1
    for _ in range(2):  # each time as after a restart
        reporter(tmp_path, service, Windows(*folded(JOB, STEP, again))).poll(NOW)
    assert [row.job_id for row in service.rows] == ["7", f"7@{folded(again)[0].submit.timestamp():.0f}"]


def test_after_a_failure_the_window_reaches_back(tmp_path: Path) -> None:
    service, windows = Service(), Windows(*folded(JOB, STEP))
    one = reporter(tmp_path, service, windows)
    one.poll(NOW)
    service.down = True
    windows.jobs += folded({**JOB, "JobIDRaw": "8"})
    with pytest.raises(ServiceUnavailable):
        one.poll(NOW + timedelta(minutes=5))
    service.down = False
    assert one.poll(NOW + timedelta(hours=5)) == 1
    assert windows.asked[-1][0] < NOW


def test_a_job_that_never_started_or_is_wrong_is_left_out(tmp_path: Path) -> None:
    never = {**JOB, "JobIDRaw": "8", "State": "CANCELLED by 0", "Start": "None"}
    wrong = {**JOB, "JobIDRaw": "9", "ElapsedRaw": "999999"}
    service, log = Service(), list[str]()
    one = reporter(tmp_path, service, Windows(*folded(JOB, STEP, never, wrong)), log)
    assert one.poll(NOW) == 1
    assert "job 7 is not reported: run_s" in log[0]
