"""The first hour of a newcomer: README's six commands for own jobs, in a fresh clone with a fresh environment, timed.

The table is made up under column names and units of its own. Run by hand: `python -m tests.newcomer`. The tests walk
the same commands in the present environment.
"""

import csv
import json
import os
import random
import re
import subprocess
import sys
import tempfile
import time
from datetime import datetime, timedelta
from pathlib import Path
from typing import Final

Row = dict[str, object]

ROOT: Final = Path(__file__).resolve().parents[1]
MOST_S: Final = 360.0
JOBS: Final = 1500
HEADER: Final = (
    "run_no", "owner", "experiment", "queued at", "began", "finished", "wall_minutes", "outcome", "cpu cores",
    "ram_gb", "gpu_count", "avg cpu cores used", "peak_ram_mb", "gpu_util_pct", "gpu_mem_mb",
)  # fmt: skip


def shown(language: str) -> list[str]:
    """Return the blocks of a language in README's section for own jobs."""
    section = (ROOT / "README.md").read_text(encoding="utf-8").partition("## On your own jobs")[2].partition("\n## ")[0]
    return re.findall(rf"```{language}\n(.*?)```", section, re.DOTALL)


def commands() -> list[str]:
    """Return README's commands for own jobs; the first sets up."""
    [block] = shown("sh")
    return block.splitlines()


def write_inputs(folder: Path, seed: int = 0) -> None:
    """Write a table of made-up jobs, a job to ask about, and a cluster, as the files that README names."""
    rng = random.Random(seed)
    kinds = [
        (f"user{i % 5}", f"exp-{i:02}", rng.uniform(10, 150), rng.uniform(0.5, 3), rng.uniform(2e3, 14e3), i % 3 + 1)
        for i in range(12)
    ]
    at, outcomes = datetime(2024, 3, 1, 8), ["ok"] * 9 + ["error"]
    with (folder / "jobs.csv").open("w", newline="", encoding="utf-8") as stream:
        table = csv.writer(stream)
        table.writerow(HEADER)
        for number in range(JOBS):
            at += timedelta(seconds=round(rng.expovariate(1 / 1200)))
            owner, experiment, minutes, cores, peak_mb, gpus = rng.choice(kinds)
            began = at + timedelta(seconds=round(rng.expovariate(1 / 200)))
            took = timedelta(seconds=round(60 * minutes * rng.lognormvariate(0, 0.2)))
            table.writerow([
                f"R{number}", owner, experiment, at, began, began + took, round(took.total_seconds() / 60, 2),
                rng.choice(outcomes), rng.choice([4, 8]), 64, gpus, round(cores * rng.uniform(0.9, 1.1), 2),
                round(peak_mb * rng.uniform(0.9, 1.1)), round(gpus * rng.uniform(20, 60), 1), rng.randint(3000, 6000),
            ])  # fmt: skip
    job = {"job_id": "next", "user": "user1", "group": "exp-01", "request": {"cpu_cores": 8, "mem_gib": 64, "gpus": 2}}
    (folder / "next.json").write_text(json.dumps(job), encoding="utf-8")
    (folder / "cluster.json").write_text(shown("json")[1], encoding="utf-8")


def walk(folder: Path, lines: list[str], env: dict[str, str]) -> tuple[list[Row], Row]:
    """Run commands in one shell after the other; return the times of each, and the recommendation among them."""
    rows, output = [], ""
    for line in lines:
        script, begin = f"[ ! -f .venv/bin/activate ] || . .venv/bin/activate; {line}", time.perf_counter()
        done = subprocess.run(
            ["sh", "-c", script],
            cwd=folder,
            env=env,
            text=True,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            check=False,
        )
        if done.returncode:
            raise RuntimeError(f"{line}: exit {done.returncode}\n{done.stdout}{done.stderr}")
        output = done.stdout if line.startswith("taut recommend") else output
        rows.append({"command": line, "seconds": time.perf_counter() - begin})
    [advice] = json.loads(output)
    return rows, advice


def shortfalls(advice: Row) -> list[str]:
    """Return why a recommendation is not backed by models of the newcomer's own jobs; empty if it is."""
    reasons = {name: advice[f"{name}_reason"] for name in ("cpu_cores", "mem_gib", "gpus")}
    found = [f"{name}: {reason}" for name, reason in reasons.items() if reason in ("cold_start", "not_measured")]
    found += [] if advice["models_run_time"] and advice["models_usage"] else ["no model answered"]
    smaller = float(str(advice["mem_gib_target"])) < float(str(advice["mem_gib"]))
    return found if smaller else [*found, "memory is not smaller"]


def main() -> None:
    """Walk from a fresh clone; end with 1 if it takes more than `MOST_S`, or without a model's recommendation."""
    dropped = ("TAUT_", "MLFLOW_", "VIRTUAL_ENV", "PYTHON")
    env = {name: value for name, value in os.environ.items() if not name.startswith(dropped)}
    with tempfile.TemporaryDirectory(prefix="newcomer-") as place:
        folder, begin = Path(place) / "taut", time.perf_counter()
        subprocess.run(["git", "clone", "--quiet", str(ROOT), str(folder)], check=True)
        write_inputs(folder)
        rows, advice = walk(folder, commands(), env)
        whole_s = time.perf_counter() - begin
    for row in rows:
        print(f"{row['seconds']:6.1f} s  {row['command']}")
    wrong = shortfalls(advice)
    print(
        f"{whole_s:6.1f} s  together, with the clone", "; ".join(wrong) or "models of the own jobs answered", sep="\n"
    )
    sys.exit(1 if wrong or whole_s > MOST_S else 0)


if __name__ == "__main__":
    main()
