"""The files that connect Slurm: filled in, and refused where they would break."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from pipelines.connect.slurm.files import WRITTEN, write_files
from pipelines.errors import BadUsage


def write(folder: Path, **changes: object) -> None:
    values = {
        "cluster": "taut",
        "socket": Path("/run/taut/s"),
        "gpus": folder / "gpus",
        "program": "/opt/taut/bin/taut",
        "service": "http://127.0.0.1:8080",
        "user": "slurm",
    }
    write_files(folder, **{**values, **changes})  # type: ignore[arg-type]


def test_all_files_are_written_without_a_slot_left(tmp_path: Path) -> None:
    write(tmp_path)
    texts = {path.name: path.read_text() for path in tmp_path.iterdir()}
    assert set(texts) == set(WRITTEN)
    assert not [name for name, text in texts.items() if re.search(r"@[A-Z]+@", text)]
    assert len(texts["slurm.conf.lines"].splitlines()) == 3
    assert os.access(tmp_path / "prolog.sh", os.X_OK)


@pytest.mark.parametrize("home", ["/home", "/root", "/run/user"])
@pytest.mark.parametrize("hidden", ["program", "python", None])
def test_the_unit_does_not_hide_a_program_in_a_home_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, home: str, hidden: str | None
) -> None:
    said = "yes" if hidden is None else "read-only"
    monkeypatch.setattr(sys, "base_prefix", f"{home}/own" if hidden == "python" else "/usr")
    write(tmp_path, program=f"{home if hidden == 'program' else '/opt'}/taut/bin/taut")
    assert f"\nProtectHome={said}\n" in (tmp_path / "taut-slurm.service").read_text()


def test_settings_that_were_edited_stay(tmp_path: Path) -> None:
    write(tmp_path)
    (tmp_path / "slurm.toml").write_text("mine")
    write(tmp_path)
    assert (tmp_path / "slurm.toml").read_text() == "mine"


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"socket": Path('/run/"..error()..".sock')}, "a path of letters"),
        ({"gpus": Path("/run/$(id)")}, "a path of letters"),
        ({"cluster": 'a"\nmode = "enforce'}, "--cluster"),
        ({"service": 'http://a"]\nmode = "enforce'}, "--url"),
        ({"user": "slurm\nUser=root"}, "--user"),
        ({"program": "taut\nExecStop=x"}, "one line"),
    ],
)
def test_texts_that_would_leave_their_place_are_refused(
    tmp_path: Path, changes: dict[str, object], message: str
) -> None:
    with pytest.raises(BadUsage, match=message):
        write(tmp_path, **changes)
    assert not list(tmp_path.iterdir())


def test_prolog_and_epilog_name_the_job_at_its_gpus(tmp_path: Path) -> None:
    write(tmp_path)

    def start(name: str, job: str, gpus: str = "0,1") -> subprocess.Popen[bytes]:
        environment = {"PATH": os.environ["PATH"], "SLURM_JOB_GPUS": gpus, "SLURM_JOB_ID": job}
        return subprocess.Popen([tmp_path / name], env=environment)

    def named() -> dict[str, list[str]]:
        return {path.name: sorted(path.read_text().split()) for path in (tmp_path / "gpus").iterdir()}

    many = [str(7 + 70 * each) for each in range(20)]
    assert {each.wait() for each in [start("prolog.sh", job) for job in ["77777", *many]]} == {0}
    assert named() == {gpu: sorted(["77777", *many]) for gpu in "01"}
    # The GPUs are not in the epilog's environment after a restart of slurmctld.
    assert {each.wait() for each in [start("epilog.sh", job, gpus="") for job in many]} == {0}
    assert named() == {"0": ["77777"], "1": ["77777"]}
    assert start("epilog.sh", "77777").wait() == 0
    assert named() == {"0": [], "1": []}
