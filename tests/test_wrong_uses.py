"""Wrong uses of every command: each is answered in plain words with exit code 1 or 2, and leaves nothing behind."""

import json
import os
import re
import shlex
from pathlib import Path

import pytest
from typer.testing import CliRunner

from pipelines.cli import app

FOREIGN = re.compile(
    r"Traceback|Errno|\b\w+(?:Error|Exception)\b:|\b(?:FileNotFound|IsADirectory|NotADirectory|Permission|Unicode|Key|Value|"
    r"Type|Attribute|Index)Error\b|Input should be|Field required|validation error|errors\.pydantic|Invalid JSON"
)
"""What must not be read by a user: names of Python's exceptions, and messages of libraries."""

USES = """
fetch pia
fetch helios --to FILE
synth pay
synth pai --tasks 3
synth pai --tasks 1000 --to FILE
synth pai --tasks 1000 --to FILE/below
synth pai --tasks 1000 --tagged-share 3
init nowhere.csv
init EMPTY
init FOLDER
init BINARY
init CSV --to nowhere/mapping.toml
init CSV --to FILE
ingest pay --from FOLDER
ingest pai --from nowhere
ingest pai --from FILE
ingest pai --from FOLDER
ingest helios --from FOLDER
ingest pai --from FOLDER --mapping TOML
ingest generic --from CSV
ingest generic --from CSV --mapping nowhere.toml
ingest generic --from CSV --mapping FILE
ingest generic --from CSV --mapping BINARY
ingest generic --from nowhere.csv --mapping TOML
ingest generic --from CSV --mapping TOML --strict 7
ingest generic --from CSV --mapping TOML --as ../escape
ingest generic --from postgresql://127.0.0.1:1/none --mapping TOML
sql
sql "select" --lake LAKE
sql "select * from nowhere" --lake LAKE
sql "select staus from jobs" --lake LAKE
sql "drop table jobs" --lake LAKE
sql "select 1; select 2" --lake LAKE
sql "select * from read_csv('/etc/passwd')" --lake LAKE
sql "select 1" --lake nowhere
sql "select 1" --lake FILE
sql "select 1" --lake FOLDER
stats
stats over_clam --lake LAKE
stats over_claim --lake nowhere
stats over_claim --lake LAKE --trace tinny
stats over_claim --lake LAKE --by colour
report --lake LAKE --out FOLDER
report --lake LAKE --out FILE/report.html
report --lake LAKE --out report.html --price-gpu-hour cheap
report --lake LAKE --out report.html --bundles nowhere
report --lake LAKE --out report.html --trace tinny
report --lake nowhere --out report.html
train --lake nowhere
train --lake LAKE --trace tinny
train --lake LAKE --type noo
train --lake LAKE --recipe nowhere.toml
train --lake LAKE --recipe BINARY
train --lake LAKE --cluster nowhere
train --lake LAKE --until tomorrow
train --lake LAKE --threads 0
evaluate --lake nowhere
evaluate --lake LAKE --since 2999-01-01
evaluate --lake LAKE --split weekly
promote runtime.tiny.none --lake LAKE
promote --lake LAKE --version 3
predict nowhere.jsonl --lake LAKE
predict FILE --lake LAKE
predict BINARY --lake LAKE
predict FOLDER --lake LAKE
job 7 --url http://127.0.0.1:1 --token-file nowhere
job 7 --url ftp://127.0.0.1
recommend --lake LAKE
recommend nowhere.jsonl --lake LAKE
recommend EMPTY --lake LAKE
recommend NOT_JOBS --lake LAKE
recommend JOBS --lake LAKE --theta 9
recommend --explain none --lake nowhere
recommend JOBS --lake LAKE --patch toml
rightsize --lake nowhere
rightsize --lake LAKE --by colour
rightsize --lake LAKE --only zzz
rightsize --lake LAKE --limit 0
rightsize --lake LAKE --by user --patch yaml
place nowhere.json
place FILE
place BINARY
place NOT_JOBS
explain-pending nowhere.json
explain-pending NOT_JOBS
simulate --lake nowhere
simulate --lake LAKE --rate 0
simulate --lake LAKE --cluster-from nowhere.toml
simulate --lake LAKE --settings nowhere.toml
simulate --lake LAKE --out FILE
simulate --lake LAKE --predictor nobody
tune --lake nowhere
retrain --lake nowhere
plan carbon --jobs nowhere.jsonl --nodes nowhere.toml --grid nowhere.csv --budget-g 5
sites simulate --grid nowhere
study nothing
study reclaim --lake nowhere
slurm history nowhere.txt
slurm history --from CSV --as ../escape
reclaim slurm --config nowhere.toml
kube manifests --config nowhere.toml
usage prometheus --url http://127.0.0.1:1 --dialect none
token name --scope everything
serve --lake nowhere --workers 0
nonsense
"""
"""One command a line; words in capitals are the files below."""


pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("wrong")
    (folder / "FILE").write_text("not what was expected\n")
    (folder / "EMPTY").touch()
    (folder / "BINARY").write_bytes(bytes(range(128, 256)) * 8)
    (folder / "FOLDER").mkdir()
    (folder / "CSV").write_text("id,submit,start,end,gpus\n1,2024-01-01,2024-01-02,2024-01-03,1\n")
    (folder / "TOML").write_text("[table]\n")
    (folder / "JOBS").write_text(json.dumps({"job_id": "a", "task_type": "ctr", "request": {"gpus": 1}}) + "\n")
    (folder / "NOT_JOBS").write_text('{"job_id": 7, "request": "much"}\n')
    made = CliRunner().invoke(app, ["synth", "pai", "--to", str(folder / "raw"), "--tasks", "1000"])
    read = CliRunner().invoke(
        app, ["ingest", "pai", "--from", str(folder / "raw"), "--lake", str(folder / "LAKE"), "--as", "tiny-synth"]
    )
    assert (made.exit_code, read.exit_code) == (0, 0), made.output + read.output
    return folder


def all_files(folder: Path) -> set[str]:
    """Return the files and folders below a folder; the lock of a lake that exists may come and go."""
    return {str(path.relative_to(folder)) for path in folder.rglob("*") if path.name != ".lock"}


@pytest.mark.parametrize("use", USES.strip().splitlines())
def test_a_wrong_use_is_answered_in_plain_words_and_leaves_nothing(
    place: Path, use: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(place)
    for name in [name for name in os.environ if name.startswith("TAUT_") and not name.startswith("TAUT_REQUIRE")]:
        monkeypatch.delenv(name)
    before = all_files(place)
    result = CliRunner().invoke(app, shlex.split(use))
    assert result.exit_code in (1, 2), result.output
    assert result.stderr.strip()
    assert not FOREIGN.search(result.stderr), result.stderr
    assert all_files(place) == before


def test_there_are_enough_wrong_uses() -> None:
    assert len(set(USES.strip().splitlines())) >= 60
