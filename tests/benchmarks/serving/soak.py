"""Minutes of steady load with all that moves while a service runs: `make soak`.

One-job predictions at a share of the peak, feedback at a steady rate, and a registry alias that moves to and fro; every
error and wrong id is counted, and memory is watched. The service begins with as many finished jobs of the last day as
it keeps, as one that has been at work for long. Ends with 1 on any error.
"""

import argparse
import json
import shutil
import subprocess
import sys
import tempfile
import time
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from features.online import GROWTH_ROWS
from modelserve.settings import PREFIX
from pipelines.render import render
from tests.benchmarks.serving.__main__ import check_machine, default_cache
from tests.benchmarks.serving.disturbance import AliasMoves, Disturbance, Feedback
from tests.benchmarks.serving.figures import Row
from tests.benchmarks.serving.load import Target, full_load, write_bodies
from tests.benchmarks.serving.models import TASK_TYPE, TRACE, trained
from tests.benchmarks.serving.processes import CLIENT_CORE, Others, Server, weights
from tests.benchmarks.serving.slope import slope_of
from tests.benchmarks.serving.soak_calls import PLACE
from tests.benchmarks.serving.stage import SPREAD_OF_JOBS, Stage, one_job_bodies, taut_server

SHARE: Final = 0.7
NAME: Final = f"runtime.{TRACE}.{TASK_TYPE}"
VERSIONS: Final = ("1", "2")
FEEDBACK_EVERY_S: Final = 0.5
ALIAS_EVERY_S: Final = 20.0
SAMPLE_EVERY_S: Final = 2.0
WINDOW_S: Final = 60.0
SETTLES: Final = 1 / 3
"""Share of the time that caches and pools may grow in before the slope is taken: 20 minutes of an hour."""
BAR_MIB_PER_H: Final = 20.0
"""Maximum growth of a process's memory; a run fails if the whole interval of the slope is above it."""
KINDS: Final = {
    "modelserve.server.worker": "worker",
    "modelserve.server.mirroring": "sync",
}
"""Names of the processes below the supervisor, by a part of their command."""
_HOUR_S: Final = 3600.0


@dataclass(slots=True)
class Soaked:
    """What a soak saw."""

    rate_per_s: float
    windows: list[Row] = field(default_factory=list)
    memory: list[tuple[float, dict[str, float]]] = field(default_factory=list)
    """Seconds since the start, and resident MiB by kind of process."""
    complaints: list[str] = field(default_factory=list)

    def memory_rows(self) -> list[Row]:
        """Return the memory of each kind of process and how it grew, once settled."""
        settled = self.memory[int(len(self.memory) * SETTLES) :]
        return [_memory_row(kind, settled, self.memory) for kind in settled[-1][1]]


def _memory_row(
    kind: str, settled: list[tuple[float, dict[str, float]]], all_of: list[tuple[float, dict[str, float]]]
) -> Row:
    at, mib = zip(*[(at / _HOUR_S, found[kind]) for at, found in settled if kind in found], strict=True)
    grew = slope_of(at, mib)
    return {
        "process": kind,
        "mib_first": mib[0],
        "mib_last": mib[-1],
        "mib_most": max(found.get(kind, 0.0) for _, found in all_of),
        "slope_mib_per_h": grew.value,
        "slope_low": grew.low,
        "slope_high": grew.high,
        "samples": len(mib),
    }


def _resident(pid: int) -> dict[str, float]:
    """Return the resident MiB of the service's processes, by kind."""
    found: dict[str, float] = {}
    for each in weights(pid):
        kind = next((kind for part, kind in KINDS.items() if part in each.what), "supervisor")
        found[kind] = found.get(kind, 0.0) + each.rss_mib
    return found


def soak(stage: Stage, minutes: float, past: int, rate_per_s: float | None) -> Soaked:
    """Run the service with its registry, tell it of a day's finished jobs, and disturb it for as long as asked."""
    uri = f"sqlite:///{stage.scratch / 'mlflow.db'}"
    shutil.copy(stage.models.folder / "mlflow.db", stage.scratch)
    shutil.copytree(stage.models.bundles, stage.scratch / "bundles")
    jobs = [job.model_copy(update={"submit_ts": None}) for job in stage.models.jobs(SPREAD_OF_JOBS)]
    asked = [job.model_copy(update={"job_id": PLACE.decode()}) for job in jobs]
    bodies = write_bodies(one_job_bodies(asked, outputs=["run_time"]), stage.scratch / "soak.txt")
    env = {f"{PREFIX}TRACKING_URI": uri, f"{PREFIX}BUNDLES": str(stage.scratch / "bundles")}
    with taut_server(stage, env=env) as server:
        feedback = Feedback(server.url, jobs, FEEDBACK_EVERY_S)
        feedback.catch_up(past)
        url = server.url + "/v1/predictions"
        peak = full_load(Target(name="taut", url=url, bodies=bodies, pid=server.pid), seconds=stage.seconds).per_s
        soaked = Soaked(rate_per_s=rate_per_s or SHARE * peak)
        print(f"peak {peak:.0f} calls a second; {minutes:g} minutes at {soaked.rate_per_s:.0f}", file=sys.stderr)
        disturbances: list[Disturbance] = [feedback, AliasMoves(uri, NAME, VERSIONS, ALIAS_EVERY_S)]
        for each in disturbances:
            each.start()
        _watch(server, _caller(url, bodies, soaked.rate_per_s, minutes), soaked)
        for each in disturbances:
            each.stop()
            print(f"{type(each).__name__}: {dict(each.counts)}", file=sys.stderr)
            soaked.complaints += each.complaints
    return soaked


def _caller(url: str, bodies: Path, rate_per_s: float, minutes: float) -> "subprocess.Popen[str]":
    window = min(WINDOW_S, minutes * 60 / 4)
    command = ["taskset", "--cpu-list", str(CLIENT_CORE), sys.executable, "-m", "tests.benchmarks.serving.soak_calls"]
    command += [url, str(bodies), "--rate", str(rate_per_s), "--seconds", str(minutes * 60), "--window", str(window)]
    return subprocess.Popen(command, stdout=subprocess.PIPE, text=True)


def _watch(server: Server, caller: "subprocess.Popen[str]", soaked: Soaked) -> None:
    """Sample memory until the calls are over, then read what was seen of them."""
    start = time.monotonic()
    try:
        while caller.poll() is None:
            soaked.memory.append((time.monotonic() - start, _resident(server.pid)))
            time.sleep(SAMPLE_EVERY_S)
        output = caller.communicate()[0]
    finally:
        caller.kill()
        caller.wait()
    if caller.returncode:
        soaked.complaints.append(f"the calling process ended with {caller.returncode}")
    cited: Counter[str] = Counter()
    for line in output.splitlines():
        window = json.loads(line)
        soaked.complaints += window.pop("complaints")
        outcomes, models = window.pop("outcomes"), window.pop("models")
        cited.update(models)
        wrong = sum(count for outcome, count in outcomes.items() if outcome != "right")
        counted = {"answers": sum(outcomes.values()), "wrong": wrong, "cited": json.dumps(models)}
        soaked.windows.append(window | counted)
    expected = {f"{NAME}@{version}" for version in VERSIONS}
    if set(cited) != expected:
        soaked.complaints.append(f"models cited: {dict(cited)}, expected {sorted(expected)}")


def main() -> None:
    """Soak, print the windows and the memory, and end with 1 on any error."""
    parser = argparse.ArgumentParser(
        prog="python -m tests.benchmarks.serving.soak", description=__doc__.splitlines()[0]
    )
    parser.add_argument("--minutes", type=float, default=10.0, help="duration in minutes (default: 10)")
    parser.add_argument(
        "--past", type=int, default=GROWTH_ROWS, help=f"finished jobs in the store (default: {GROWTH_ROWS})"
    )
    parser.add_argument("--rate", type=float, help=f"calls per second (default: {SHARE} of the highest rate)")
    parser.add_argument("--format", choices=("table", "json", "csv"), default="table")
    parser.add_argument("--cache", type=Path, default=default_cache(), help="folder kept between runs")
    asked = parser.parse_args()
    check_machine()
    models = trained(asked.cache)
    others = Others()
    with tempfile.TemporaryDirectory(prefix="taut-soak-") as scratch:
        stage = Stage(models=models, scratch=Path(scratch), cache=asked.cache, rounds=1, seconds=5.0)
        soaked = soak(stage, asked.minutes, asked.past, asked.rate)
    render(soaked.windows, asked.format, stream=sys.stdout)
    grew = soaked.memory_rows()
    render(grew, asked.format, stream=sys.stdout)
    for complaint in soaked.complaints[:20]:
        print(complaint, file=sys.stderr)
    wrong = sum(int(str(window["wrong"])) for window in soaked.windows)
    print(f"others took {others.share():.0%} of the machine meanwhile", file=sys.stderr)
    print(f"{wrong} wrong answers, {len(soaked.complaints)} complaints", file=sys.stderr)
    growing = [row for row in grew if float(str(row["slope_low"])) > BAR_MIB_PER_H]
    for row in growing:
        grown = f"memory of the {row['process']} grew by at least {row['slope_low']:.0f} MiB/h"
        print(f"{grown}, expected at most {BAR_MIB_PER_H:.0f}", file=sys.stderr)
    if wrong or soaked.complaints or growing:
        raise SystemExit(1)


if __name__ == "__main__":
    main()
