"""Minutes of steady load with feedback and model changes: `make soak`.

One-job predictions at a share of the peak, feedback at a steady rate, and a registry alias that moves to and fro; every
error and wrong id is counted, and memory is watched. The service begins with as many finished jobs of the last day as
it keeps. Ends with 1 on any error.
"""

import http.client
import json
import shutil
import subprocess
import sys
import threading
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Final
from urllib.parse import urlsplit

import numpy as np

from features.online import GROWTH_ROWS
from modelserve.contract.requests import JobRow
from modelserve.settings import PREFIX
from pipelines.render import render
from tests.benchmarks.harness import Others, Row, parser_of, slope_of
from tests.benchmarks.serving.paced import PLACE
from tests.benchmarks.serving.processes import CLIENT_CORE, Server, weights
from tests.benchmarks.serving.stage import (
    COMPARED,
    SPREAD_OF_JOBS,
    Stage,
    Target,
    add_cache,
    full_load,
    one_job_bodies,
    staged,
    taut_server,
    write_bodies,
)

SHARE: Final = 0.7
VERSIONS: Final = ("1", "2")
FEEDBACK_EVERY_S: Final = 0.5
FEEDBACK_ROWS: Final = 10
PAST_ROWS: Final = 1000
"""Finished jobs in one call before the load begins."""
ALIAS_EVERY_S: Final = 20.0
SAMPLE_EVERY_S: Final = 2.0
WINDOW_S: Final = 60.0
SETTLES: Final = 1 / 3
"""Share of the time that caches and pools may grow in before the slope is taken: 20 minutes of an hour."""
BAR_MIB_PER_H: Final = 20.0
"""Maximum growth of a process's memory; a run fails if the whole interval of the slope is above it."""
KINDS: Final = {"modelserve.server.worker": "worker", "modelserve.server.environment": "sync"}
"""Names of the processes below the supervisor, by a part of their command."""


@dataclass(slots=True)
class Soaked:
    """What a soak saw: windows of calls, resident MiB by kind of process at a time in hours, and complaints."""

    windows: list[Row] = field(default_factory=list)
    memory: list[tuple[float, dict[str, float]]] = field(default_factory=list)
    complaints: list[str] = field(default_factory=list)

    def memory_rows(self) -> list[Row]:
        """Return the memory of each kind of process and how it grew, once settled."""
        settled = self.memory[int(len(self.memory) * SETTLES) :]
        rows: list[Row] = []
        for kind in settled[-1][1]:
            at_h, mib = zip(*[(at, held[kind]) for at, held in settled if kind in held], strict=True)
            slope, low, high = slope_of(at_h, mib)
            most = max(held.get(kind, 0.0) for _, held in self.memory)
            grew = {"slope_mib_per_h": slope, "slope_low": low, "slope_high": high, "samples": len(mib)}
            rows.append({"process": kind, "mib_first": mib[0], "mib_last": mib[-1], "mib_most": most, **grew})
        return rows


def repeat(act: Callable[[int], None], every_s: float, over: threading.Event, complaints: list[str]) -> None:
    """Do something again and again until it is `over`; keep its errors."""
    number = 0
    while not over.wait(every_s):
        try:
            act(number)
        except Exception as error:  # whatever it is, the soak goes on and reports it
            complaints.append(f"{act.__name__} {number}: {type(error).__name__}: {str(error)[:300]}")
        number += 1


class Feedback:
    """Finished jobs, reported over one connection."""

    def __init__(self, url: str, jobs: Sequence[JobRow]) -> None:
        self._connection = http.client.HTTPConnection(urlsplit(url).netloc, timeout=30)
        self._jobs, self._rng = jobs, np.random.default_rng(0)

    def catch_up(self, count: int) -> None:
        """Report jobs that ended over the last day, evenly and in their order: what a service at work knows."""
        now = datetime.now(UTC)
        ends = [now - timedelta(days=1) * (1 - place / count) for place in range(count)]
        for start in range(0, count, PAST_ROWS):
            past = enumerate(ends[start : start + PAST_ROWS], start=start)
            self._report([self._row(f"past-{number:08d}", number, end) for number, end in past])

    def feedback(self, number: int) -> None:
        """Report jobs that end now."""
        numbers = range(number * FEEDBACK_ROWS, (number + 1) * FEEDBACK_ROWS)
        self._report([self._row(f"ended-{each:08d}", each, datetime.now(UTC)) for each in numbers])

    def _report(self, rows: Sequence[Row]) -> None:
        body = json.dumps({"feedback": rows})
        self._connection.request("POST", "/v1/feedback", body, {"Content-Type": "application/json"})
        answer = self._connection.getresponse()
        content = answer.read()
        if answer.status != 200:
            raise RuntimeError(f"{answer.status} {content[:300]!r}, expected 200")

    def _row(self, job_id: str, number: int, end: datetime) -> Row:
        job = self._jobs[number % len(self._jobs)]
        kept = job.model_dump(mode="json", exclude_defaults=True, exclude={"submit_ts"})
        start = end - timedelta(seconds=float(np.round(self._rng.lognormal(5.0, 1.0), 1)))
        parts = {"cpu_cores": (job.request.cpu_cores, 0.4), "mem_max_gib": (job.request.mem_gib, 0.5)}
        used = {name: None if asked is None else asked * share for name, (asked, share) in parts.items()}
        times = {"submit_ts": start.isoformat(), "start_ts": start.isoformat(), "end_ts": end.isoformat()}
        return {**kept, **times, "job_id": job_id, "outcome": "completed", "used": used}


def soak(stage: Stage, minutes: float) -> Soaked:
    """Run the service with its registry, report a day's finished jobs, and load and disturb it for some minutes."""
    from mlflow import MlflowClient

    uri = f"sqlite:///{stage.scratch / 'mlflow.db'}"
    shutil.copy(stage.models.folder / "mlflow.db", stage.scratch)
    shutil.copytree(stage.models.bundles, stage.scratch / "bundles")
    jobs = [job.model_copy(update={"submit_ts": None}) for job in stage.models.jobs(SPREAD_OF_JOBS)]
    placed = [job.model_copy(update={"job_id": PLACE.decode()}) for job in jobs]
    bodies = write_bodies(one_job_bodies(placed, outputs=["run_time"]), stage.scratch / "soak.txt")
    env = {f"{PREFIX}TRACKING_URI": uri, f"{PREFIX}BUNDLES": str(stage.scratch / "bundles")}
    client, soaked = MlflowClient(tracking_uri=uri), Soaked()

    def alias(number: int) -> None:
        client.set_registered_model_alias(COMPARED, "champion", VERSIONS[(number + 1) % len(VERSIONS)])

    with taut_server(stage, env=env) as server:
        reports = Feedback(server.url, jobs)
        reports.catch_up(GROWTH_ROWS)
        url = server.url + "/v1/predictions"
        peak = full_load(Target(name="taut", url=url, bodies=bodies, pid=server.pid), seconds=stage.seconds).per_s
        rate = SHARE * peak
        print(f"peak {peak:.0f} calls a second; {minutes:g} minutes at {rate:.0f}", file=sys.stderr)
        over = threading.Event()
        with ThreadPoolExecutor() as pool:
            for act, every_s in ((reports.feedback, FEEDBACK_EVERY_S), (alias, ALIAS_EVERY_S)):
                pool.submit(repeat, act, every_s, over, soaked.complaints)
            try:
                _watch(server, _caller(url, bodies, rate, minutes), soaked)
            finally:
                over.set()
    return soaked


def _caller(url: str, bodies: Path, rate_per_s: float, minutes: float) -> "subprocess.Popen[str]":
    command = ["taskset", "--cpu-list", CLIENT_CORE, sys.executable, "-m", "tests.benchmarks.serving.paced", url]
    pace = {"bodies": bodies, "rate": rate_per_s, "seconds": minutes * 60, "window": min(WINDOW_S, minutes * 60 / 4)}
    options = [part for name, value in pace.items() for part in (f"--{name}", value)]
    return subprocess.Popen([*map(str, (*command, *options)), "--ids"], stdout=subprocess.PIPE, text=True)


def _watch(server: Server, caller: "subprocess.Popen[str]", soaked: Soaked) -> None:
    """Sample memory until the calls are over, then read their windows."""
    start = time.monotonic()
    try:
        while caller.poll() is None:
            held = defaultdict[str, float](float)
            for command, mib in weights(server.pid):
                held[next((kind for part, kind in KINDS.items() if part in command), "supervisor")] += mib
            soaked.memory.append(((time.monotonic() - start) / 3600.0, dict(held)))
            time.sleep(SAMPLE_EVERY_S)
        output = caller.communicate()[0]
    finally:
        caller.kill()
        caller.wait()
    if caller.returncode:
        soaked.complaints.append(f"the calling process ended with {caller.returncode}")
    cited: Counter[str] = Counter()
    for number, line in enumerate(output.splitlines()):
        window = json.loads(line)
        soaked.complaints += window.pop("complaints")
        cited.update(window["models"])
        soaked.windows.append({"window": number, **window, "models": json.dumps(window["models"])})
    expected = {f"{COMPARED}@{version}" for version in VERSIONS}
    if set(cited) != expected:
        soaked.complaints.append(f"models cited: {dict(cited)}, expected {sorted(expected)}")


def main(argv: Sequence[str] | None = None) -> None:
    """Soak, print the windows and the memory, and end with 1 on any error."""
    parser = parser_of("serving.soak", __doc__, ["soak"])
    parser.set_defaults(rounds=1, seconds=5.0)
    parser.add_argument("--minutes", type=float, default=10.0, help="duration in minutes (default: 10)")
    add_cache(parser)
    options = parser.parse_args(argv)
    with staged(options) as stage:
        others = Others()
        soaked = soak(stage, options.minutes)
    grew = soaked.memory_rows()
    for rows in (soaked.windows, grew):
        render(rows, options.format, stream=sys.stdout)
    wrong = sum(int(str(window["wrong"])) for window in soaked.windows)
    growing = [row for row in grew if float(str(row["slope_low"])) > BAR_MIB_PER_H]
    problems = soaked.complaints[:20] + [
        f"memory of the {row['process']} grew by at least {row['slope_low']:.0f} MiB/h, expected {BAR_MIB_PER_H:.0f}"
        for row in growing
    ]
    print(*problems, sep="\n", file=sys.stderr)
    print(f"others took {others.share():.0%} of the machine meanwhile", file=sys.stderr)
    print(f"{wrong} wrong answers, {len(soaked.complaints)} complaints", file=sys.stderr)
    if wrong or problems:
        raise SystemExit(1)


if __name__ == "__main__":
    main()
