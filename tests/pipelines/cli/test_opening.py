from pathlib import Path

import pytest

from pipelines.cli.opening import read_jobs
from pipelines.errors import BadUsage


def test_jobs_are_read_from_json_lines(tmp_path: Path) -> None:
    lines = tmp_path / "jobs.jsonl"
    lines.write_text('{"job_id": "a", "task_type": "nlp", "request": {"cpu_cores": 6}}\n', encoding="utf-8")

    assert [row.job_id for row in read_jobs(str(lines))] == ["a"]


@pytest.mark.parametrize("name", ["absent.jsonl", "."])
def test_a_file_that_cannot_be_read_is_named(tmp_path: Path, name: str) -> None:
    with pytest.raises(BadUsage, match="found no file of jobs that can be read; expected JSON lines"):
        read_jobs(str(tmp_path / name))
