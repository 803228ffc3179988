"""The plugin script under a plain Lua: what it sends, what it changes, and that every fault leaves the job as asked."""

import re
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from pipelines.connect.slurm.files import PLUGIN, write_files
from tests.deploy.tools import tool
from tests.pipelines.connect.slurm.agents import FAULTS, GOOD, SLOW, fake_agent, saying

PAGE = Path(__file__).resolve().parents[4] / "docs" / "slurm.md"
DRIVER = r"""
slurm = { SUCCESS = 0, log_info = function(f, t) print("log", t) end, log_user = function(f, t) print("user", t) end }
dofile(arg[1])
local calls = tonumber(arg[2])
local job = { cpus_per_task = 6, num_tasks = 1, min_cpus = 6, pn_min_cpus = 6, min_mem_per_node = 30004,
  min_mem_per_cpu = nil, shared = 65534, het_job_offset = 4294967294, min_nodes = 4294967294, user_name = "anna",
  name = "a\nb%", default_account = "research", script = SCRIPT or "#!/bin/sh\ntrue\n" }
local parts = { gpu = { flag_default = 1 }, cpu = { flag_default = 0 } }
local socket = require "socket"
for i = 1, calls do
  local before = socket.gettime()
  assert(slurm_job_submit(job, parts, 0) == slurm.SUCCESS)
  print("took", string.format("%.4f", socket.gettime() - before))
end
for _, name in ipairs({ "cpus_per_task", "min_cpus", "pn_min_cpus", "min_mem_per_node", "min_mem_per_cpu",
    "admin_comment" }) do print(name, job[name]) end
"""
AS_ASKED = {
    "cpus_per_task": "6",
    "min_cpus": "6",
    "pn_min_cpus": "6",
    "min_mem_per_node": "30004",
    "min_mem_per_cpu": "nil",
    "admin_comment": "nil",
}


@pytest.fixture
def folder() -> Iterator[Path]:
    with tempfile.TemporaryDirectory(dir="/tmp", prefix="taut-lua-") as short:  # a socket's path is short
        yield Path(short)


@pytest.fixture
def script(folder: Path) -> Path:
    write_files(
        folder,
        cluster="taut",
        socket=folder / "s",
        gpus=folder,
        program="taut",
        service="http://127.0.0.1:9",
        user="root",
    )
    return folder / PLUGIN


def submitted(script: Path, *, calls: int = 1, text: str = "true") -> tuple[dict[str, str], list[str], list[float]]:
    """Run the plugin over one job; return the job's fields after it, the lines logged, and the seconds of each call."""
    driver = script.with_name("driver.lua")
    driver.write_text(f"SCRIPT = [[\n{text}\n]]\n{DRIVER}")
    words = [tool("lua5.1"), str(driver), str(script), str(calls)]
    done = subprocess.run(words, capture_output=True, text=True, timeout=30, check=True)
    rows = [line.split("\t") for line in done.stdout.splitlines()]
    logged = [row[1] for row in rows if row[0] in ("log", "user")]
    seconds = [float(row[1]) for row in rows if row[0] == "took"]
    return {row[0]: row[1] for row in rows if row[0] in AS_ASKED}, logged, seconds


def test_a_sound_answer_changes_the_job_and_informs_the_user(script: Path, folder: Path) -> None:
    with fake_agent(folder / "s", saying(GOOD)) as came:
        job, logged, _ = submitted(script)
    assert job == {
        "cpus_per_task": "2",
        "min_cpus": "2",
        "pn_min_cpus": "2",
        "min_mem_per_node": "512",
        "min_mem_per_cpu": "nil",
        "admin_comment": "taut a-1 x",
    }
    assert logged[-1] == "hi"
    sent = came[0].decode().rstrip("\n").split("\n")
    assert {"cpus_per_task=6", "min_mem_per_node=30004", "user_name=anna", "name=a%0Ab%25", "batch=1"} <= set(sent)
    assert {"account=research", "partition=gpu"} <= set(sent)
    assert not any(line.startswith(("shared", "het_job_offset", "min_nodes")) for line in sent)


@pytest.mark.parametrize("fault", FAULTS)
def test_every_fault_leaves_the_job_as_asked(script: Path, folder: Path, fault: str) -> None:
    with fake_agent(folder / "s", FAULTS[fault]) as came:
        job, logged, [took] = submitted(script)
    assert job == AS_ASKED
    assert len(came) == 1
    assert "the job stands as asked" in logged[-1]
    assert took < (0.8 if fault in SLOW else 0.4)


def test_no_agent_leaves_the_job_as_asked(script: Path) -> None:
    job, logged, _ = submitted(script)
    assert job == AS_ASKED
    assert "cannot reach the agent" in logged[-1]


def test_submissions_without_an_answer_are_told_with_the_next_one(script: Path, folder: Path) -> None:
    acts = iter([FAULTS["closes"], FAULTS["garbage"], saying(GOOD), saying(GOOD)])
    with fake_agent(folder / "s", lambda connection: next(acts)(connection)) as came:
        submitted(script, calls=4)
    assert [re.findall(rb"^lost=(\d+)$", request, re.MULTILINE) for request in came] == [[], [b"1"], [b"2"], []]


def test_after_three_failures_the_agent_is_left_alone(script: Path, folder: Path) -> None:
    with fake_agent(folder / "s", FAULTS["late"]) as came:
        job, _, seconds = submitted(script, calls=6)
    assert job == AS_ASKED
    assert len(came) == 3
    assert max(seconds[:3]) > 0.4
    assert max(seconds[3:]) < 0.05


SITE = """
slurm = { SUCCESS = 0, ERROR = -1, log_info = function() end, log_user = function() end }
function slurm_job_submit(job) return job.refused and slurm.ERROR or slurm.SUCCESS end
function slurm_job_modify() return "the site's" end
"""


def test_the_documented_wrapper_keeps_both_functions_of_the_site(script: Path, folder: Path) -> None:
    [wrapper] = [each for each in re.findall(r"```text\n(.*?)```", PAGE.read_text(), re.S) if "dofile" in each]
    calls = """
    local job = { cpus_per_task = 6, min_cpus = 6, pn_min_cpus = 6, min_mem_per_node = 30004, script = "true" }
    print(slurm_job_submit({ refused = true }, {}, 0), slurm_job_submit(job, {}, 0), job.cpus_per_task)
    print(slurm_job_modify())
    """
    driver = folder / "site.lua"
    driver.write_text(SITE + wrapper.replace("/etc/taut/job_submit.lua", str(script)) + calls)
    with fake_agent(folder / "s", saying(GOOD)) as came:
        done = subprocess.run([tool("lua5.1"), driver], capture_output=True, text=True, timeout=30, check=True)
    assert done.stdout.split() == ["-1", "0", "2", "the", "site's"]
    assert len(came) == 1


@pytest.mark.parametrize(
    ("text", "marked"),
    [
        ("srun python train.py", ""),
        ("srun -c $SLURM_CPUS_PER_TASK python train.py", ""),
        ('srun --cpus-per-task="${SLURM_CPUS_PER_TASK}" python', ""),
        ("#SBATCH -c 8\n# srun -c 8 python", ""),
        ("#!/bin/bash\nset -e\nmodule load cuda\ncd $HOME\nsource env/bin/activate\nexec python3.11 train.py", ""),
        ("for seed in 1 2; do\n  OMP_NUM_THREADS=$SLURM_CPUS_PER_TASK python -c 'import a; a.run()' &\ndone\nwait", ""),
        ('if [ -f "$DATA" ]; then cp "$DATA" x; fi; echo "of $(date)" > log; env', "unseen"),
        ("env; out=$(date); echo $out", ""),
        ("srun -c 8 python train.py", "own"),
        ("srun -c8 python", "own"),
        ("srun \\\n  --cpus-per-task=8 python", "own"),
        ("srun --mem=64G python", "own"),
        ("srun -n 16 ./solver", "own"),
        ("srun --ntasks=16 ./solver", "own"),
        ('RUN="srun -c 8"\n$RUN python train.py', "own"),
        ("RUN=srun; $RUN -c 8 python", "own"),
        ("bash -c 'srun -c 8 python'", "own"),
        ("xargs srun < jobs", "own"),
        ("x" * 70_000, "own"),
        ("source site.sh\npython train.py", "unseen"),
        ("./run.sh", "unseen"),
        ("$RUN python train.py", "unseen"),
        ("make train", "unseen"),
        ("mpirun ./solver", "unseen"),
        ("python train.py $(./wrapper)", "unseen"),
        ("bash <<EOF\npython\nEOF", "unseen"),
        ("python train.py  # don't stop\n./wrapper  # can't", "unseen"),
        ('echo "open\npython', "unseen"),
        ("#!/usr/bin/python3\nimport train", "unseen"),
    ],
)
def test_a_script_is_marked_unless_its_steps_fit_into_a_smaller_job(
    script: Path, folder: Path, text: str, marked: str
) -> None:
    with fake_agent(folder / "s", saying(b"end=1\n")) as came:
        submitted(script, text=text)
    found = {line for line in came[0].split(b"\n") if line.startswith(b"steps_")}
    assert found == ({f"steps_{marked}=1".encode()} if marked else set())
