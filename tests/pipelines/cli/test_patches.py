"""Patches to paste: amounts round up, raises count, and a name cannot leave its comment."""

import subprocess
from pathlib import Path

import pytest
import yaml

from pipelines.cli.rightsize import PatchFormat, advice_patches, rightsize_patches

ANSWER = {
    "job_id": "a1",
    "measured_runs": 55,
    "cpu_cores": 6.0,
    "mem_gib": 29.3,
    "gpus": 1.0,
    "cpu_cores_target": 1.2617,
    "mem_gib_target": 29.3,
    "gpus_target": 0.7,
    "cpu_cores_reason": "floor",
    "mem_gib_reason": "too_little",
    "gpus_reason": "floor",
    "cpu_cores_raise_to": None,
    "mem_gib_raise_to": 40.0001,
    "gpus_raise_to": None,
}


def test_a_patch_of_yaml_is_the_resources_of_a_container() -> None:
    text = advice_patches([ANSWER, ANSWER | {"job_id": "b2"}], "yaml")
    first, second = yaml.safe_load_all(text)
    assert first == second
    assert first["resources"] == {
        "requests": {"cpu": "1262m", "memory": "40961Mi"},
        "limits": {"nvidia.com/gpu": "1"},
    }
    assert "0.7 of a GPU" in text


def test_a_patch_of_sbatch_is_a_script_that_bash_accepts(tmp_path: Path) -> None:
    text = advice_patches([ANSWER], "sbatch")
    options = [line for line in text.splitlines() if line.startswith("#SBATCH")]
    assert options == ["#SBATCH --cpus-per-task=2", "#SBATCH --mem=40961M", "#SBATCH --gpus-per-node=1"]
    script = tmp_path / "job.sh"
    script.write_text(f"#!/bin/bash\n{text}echo ran\n")
    assert subprocess.run(["bash", script], capture_output=True, text=True, check=True).stdout == "ran\n"


@pytest.mark.parametrize("form", ["yaml", "sbatch"])
def test_a_name_cannot_leave_its_comment(form: PatchFormat) -> None:
    row = ANSWER | {"group": "g\n#SBATCH --uid=0", "user": "u\rx", "task_type": None, "role": None, "evidence_runs": 3}
    text = rightsize_patches([row], form)
    assert "#SBATCH --uid=0" in text
    assert not any(line.startswith("#SBATCH --uid") for line in text.splitlines())


def test_without_a_change_the_patch_says_so() -> None:
    row = ANSWER | {"cpu_cores_target": 6.0, "mem_gib_raise_to": None, "gpus_target": None}
    assert "# nothing to change" in advice_patches([row], "sbatch")
