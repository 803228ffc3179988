"""One simulation as files: what they hold, that the same simulation gives the same bytes, and what is refused."""

import hashlib
import json
import math
from pathlib import Path

import polars as pl
import pytest

from pipelines.errors import BadUsage
from pipelines.simulation.engine.schedule import Ending, Schedule
from pipelines.simulation.files import event_table, write_simulation
from pipelines.simulation.measures.metrics import summarise
from pipelines.simulation.settings import SimulationSettings
from tests.pipelines.simulation.engine.schedules import Came, Ran, schedule


def two_jobs() -> Schedule:
    came = [Came(run_s=20.0), Came(at_s=10.0, run_s=500.0)]
    ran = [Ran(job=0, start_s=0.0, end_s=20.0), Ran(job=1, start_s=20.0, end_s=520.0, ending=Ending.RUNNING)]
    return schedule(came, ran)


def written(folder: Path, ran: Schedule | None = None) -> Path:
    ran = ran or two_jobs()
    return write_simulation(
        folder,
        ran,
        summarise(ran),
        settings={"seed": 3, "policy": "fifo", "aging": math.inf, "lake": Path("some/lake")},
        capacity_assumption="the machine table of the trace",
        step_s=50.0,
        notes=["jobs=all"],
        names={"job_id": ["a", None][: len(ran.workload)]},
    )


def test_the_summary_holds_settings_capacity_notes_and_metrics(tmp_path: Path) -> None:
    text = written(tmp_path / "new" / "run").read_text(encoding="utf-8")

    summary = json.loads(text)
    assert list(summary) == sorted(summary)
    assert list(summary["metrics"]) == sorted(summary["metrics"])
    assert summary["settings"] == {"aging": None, "lake": "some/lake", "policy": "fifo", "seed": 3}
    assert summary["capacity"] == {
        "assumption": "the machine table of the trace",
        "machines": 1,
        "cpu_cores": 8.0,
        "mem_gib": 16.0,
        "gpus": 4,
        "gpu_types": {"any": {"machines": 1, "gpus": 4}},
    }
    assert summary["notes"] == ["jobs=all"]
    assert (summary["end_s"], summary["metrics"]["completed"], summary["metrics"]["running"]) == (100.0, 1, 1)
    assert summary["metrics"]["cpu_used_frac"] is None, "what was not measured is null"
    assert text.endswith("}\n")


def test_the_tables_are_named_with_their_checksums(tmp_path: Path) -> None:
    files = json.loads(written(tmp_path).read_text(encoding="utf-8"))["files"]

    log, steps = pl.read_parquet(tmp_path / "events.parquet"), pl.read_parquet(tmp_path / "series.parquet")
    assert log.columns[:4] == ["time_s", "event", "serial", "job_id"]
    assert log.rows()[0] == (0.0, "arrive", 0, "a", 1, 4.0, 8.0, 2.0, "")
    assert log["event"].to_list() == ["arrive", "start", "arrive", "complete", "start"]
    assert log["job_id"].to_list() == ["a", "a", None, "a", None]
    assert log["machines"].to_list() == ["", "m0:1", "", "m0:1", "m0:1"]
    assert steps["running"].to_list() == [1.0, 1.0]
    assert {name: file["rows"] for name, file in files.items()} == {"events.parquet": 5, "series.parquet": 2}
    for name, file in files.items():
        assert file["sha256"] == hashlib.sha256((tmp_path / name).read_bytes()).hexdigest()


def test_the_same_simulation_gives_the_same_bytes_and_replaces_another(tmp_path: Path) -> None:
    written(tmp_path / "one")
    written(tmp_path / "two", schedule([Came()], end_s=10.0, on=2))
    (tmp_path / "two" / "events.parquet.partial").write_bytes(b"left by a run that was killed")
    written(tmp_path / "two")

    assert {e.name: e.read_bytes() for e in (tmp_path / "one").iterdir()} == {
        e.name: e.read_bytes() for e in (tmp_path / "two").iterdir()
    }


def test_a_folder_with_something_else_is_left_alone(tmp_path: Path) -> None:
    (tmp_path / "thesis.tex").write_text("years of work", encoding="utf-8")

    with pytest.raises(BadUsage, match=r"thesis\.tex"):
        written(tmp_path)

    assert [entry.name for entry in tmp_path.iterdir()] == ["thesis.tex"]


@pytest.mark.parametrize("what", ["link", "folder"])
def test_what_only_has_our_name_is_left_alone(tmp_path: Path, what: str) -> None:
    folder = tmp_path / "results"
    folder.mkdir()
    if what == "link":
        (tmp_path / "elsewhere").write_text("not ours", encoding="utf-8")
        (folder / "series.parquet").symlink_to(tmp_path / "elsewhere")
    else:
        (folder / "series.parquet").mkdir()

    with pytest.raises(BadUsage, match=r"series\.parquet"):
        written(folder)


def test_a_file_in_the_folders_place_is_refused(tmp_path: Path) -> None:
    place = tmp_path / "results"
    place.write_text("", encoding="utf-8")

    with pytest.raises(BadUsage, match="found a file"):
        written(place)


def test_a_summary_never_stands_beside_other_tables(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    written(tmp_path)
    real = Path.replace

    def breaks_at_series(self: Path, target: Path) -> Path:
        if target.name == "series.parquet":
            raise OSError("no space left")
        return real(self, target)

    monkeypatch.setattr(Path, "replace", breaks_at_series)
    with pytest.raises(OSError, match="no space"):
        written(tmp_path, schedule([Came()], end_s=10.0))

    assert not (tmp_path / "simulation.json").exists()
    monkeypatch.undo()
    assert written(tmp_path).exists(), "and the folder can be written again"


def test_names_of_other_jobs_are_refused() -> None:
    with pytest.raises(BadUsage, match="found 1 values of job_id, expected 2"):
        event_table(two_jobs(), {"job_id": ["a"]})


def test_no_job_at_all_can_be_written(tmp_path: Path) -> None:
    nothing = schedule([], end_s=100.0)

    write_simulation(tmp_path, nothing, summarise(nothing), settings={}, capacity_assumption="one machine", step_s=50.0)

    assert pl.read_parquet(tmp_path / "events.parquet").height == 0
    assert pl.read_parquet(tmp_path / "series.parquet")["free_gpus"].to_list() == [4.0, 4.0]


@pytest.mark.parametrize(("warm_up_s", "said"), [(0.0, 0), (5400.0, 1)])
def test_what_a_warm_up_does_not_leave_out_is_said(warm_up_s: float, said: int) -> None:
    notes = SimulationSettings(warm_up_s=warm_up_s).notes()

    assert sum("measured from 1.5 h on" in note and "stranded_gpu_frac" in note for note in notes) == said
