"""`taut plan carbon --apply slurm` on a real Slurm: jobs wait for clean hours, within the budget of every period."""

import json

import pytest

from tests.pipelines.connect.slurm.agents import fake_agent, saying
from tests.pipelines.connect.slurm.closed_loop import taut
from tests.pipelines.connect.slurm.running import Cluster

pytestmark = pytest.mark.slow

SPEED = 450
"""Seconds of the grid per second: a period of an hour lasts 8 s."""
DIRTY, CLEAN = 900.0, 100.0
NODES = 'pue = 1.0\n[[nodes]]\nname = "n"\ngpu_type = "V100"\ngpus = 4\ncount = 2\n'


def test_jobs_run_in_the_clean_hours_within_the_budget_of_every_period(slurm: Cluster) -> None:
    with fake_agent(slurm.socket, saying(b"end=1\n")):
        slurm.reload()
        numbers = [slurm.submit("-H", "-J", f"plan{i}", "-n1", "--mem=50M", wrap="sleep 3") for i in range(4)]
    home = slurm.run / "home"
    # 3 s and a second to start and end: 1800 s of the grid at 300 W are 15 g in a clean hour, 135 g in a dirty one
    jobs = [{"job_id": str(number), "request": {"gpus": 1}, "run_s": 1800.0} for number in numbers]
    (home / "own.jsonl").write_text("\n".join(map(json.dumps, jobs)))
    (home / "nodes.toml").write_text(NODES)
    hours = [DIRTY, *[CLEAN] * 23]
    rows = [f"2023-06-01T{hour:02d}:00Z,{value}" for hour, value in enumerate(hours)]
    (home / "own.csv").write_text("\n".join(["ts,carbon_g_per_kwh", *rows]) + "\n")

    words = ["--jobs", "own.jsonl", "--nodes", "nodes.toml", "--grid", "own.csv", "--at", "2023-06-01T00:00:00"]
    words += ["--budget-g", "36", "--period-s", "3600", "--rounds", "12", "--speed", str(SPEED), "--apply", "slurm"]
    periods = json.loads(taut(slurm, "plan", "carbon", *words, "--format", "json"))

    assert periods[0]["g_per_kwh"] == DIRTY
    assert (periods[0]["jobs_ran"], periods[0]["jobs_waiting"]) == (0, 4)
    assert periods[-1]["jobs_ended"] == 4
    assert len(periods) >= 3  # two jobs fit into an hour
    assert all(period["spent_g"] <= 1.05 * period["budget_g"] for period in periods)
    assert sum(period["spent_g"] for period in periods) >= 4 * 300.0 * 3 * SPEED / 3.6e6 * CLEAN
