"""Commands on a full disk name the file and the reason, and leave no file that the next run would refuse."""

import resource
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from typer.testing import CliRunner

from pipelines.cli import app


@contextmanager
def files_of_at_most(size: int) -> Iterator[None]:
    """Refuse to write more than `size` bytes to a file, as a full disk does."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


def test_init_names_the_mapping_and_leaves_none(tmp_path: Path) -> None:
    jobs, mapping = tmp_path / "jobs.csv", tmp_path / "mapping.toml"
    jobs.write_text("job_id,submit\na,2024-01-31T10:00:00\n")

    with files_of_at_most(1):
        refused = CliRunner().invoke(app, ["init", str(jobs), "--to", str(mapping)])
    left = sorted(each.name for each in tmp_path.iterdir())
    again = CliRunner().invoke(app, ["init", str(jobs), "--to", str(mapping)])

    assert refused.exit_code == 1
    assert f"taut: {mapping}: File too large; check the path" in refused.stderr
    assert left == ["jobs.csv"]
    assert again.exit_code == 0, again.stderr


def test_synth_names_the_folder_and_the_reason(tmp_path: Path) -> None:
    with files_of_at_most(1):
        refused = CliRunner().invoke(app, ["synth", "pai", "--tasks", "1000", "--to", str(tmp_path / "raw")])

    assert refused.exit_code == 1
    assert f"taut: {tmp_path / 'raw'}: File too large; check the path" in refused.stderr
