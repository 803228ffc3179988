"""How long one-job calls take at half of what the server can answer: the slowest hundredth against the middle.

Part d of `tests.benchmarks.serving`; how the calls are paced is `paced`'s.
"""

import json
import subprocess
import sys
from functools import partial
from typing import Final

from tests.benchmarks.serving.figures import Bar, Row, alternately, amount_row, ratio_row
from tests.benchmarks.serving.load import Target, full_load, write_bodies
from tests.benchmarks.serving.processes import CLIENT_CORE
from tests.benchmarks.serving.stage import SPREAD_OF_JOBS, Stage, empty_server, one_job_bodies, taut_server

SHARE: Final = 0.5
EMPTY: Final = "an empty endpoint, even moments"
BAR: Final = Bar(side="at most", value=4.0)
EMPTY_BAR: Final = Bar(side="at most", value=1.2)
"""p99 over p50 against that of the empty endpoint in the same round: what taut adds to the tail of the framework."""


def latency_rows(stage: Stage) -> list[Row]:
    """Return p99 over p50 with calls at equal distances, and with calls that know nothing of each other.

    Beside the first the same of an empty endpoint, in the same rounds and at as many calls a second: what the machine
    and the web framework take of it.
    """
    bodies = one_job_bodies(stage.models.jobs(SPREAD_OF_JOBS), outputs=["run_time"])
    file = write_bodies(bodies, stage.scratch / "paced.txt")
    with taut_server(stage) as server, empty_server(stage) as nothing:
        target = Target(name="taut", url=server.url + "/v1/predictions", bodies=file, pid=server.pid)
        empty = Target(name="empty", url=nothing.url + "/empty", bodies=file, pid=nothing.pid)
        peaks = [full_load(target, seconds=stage.seconds).per_s for _ in range(2)]
        rate = SHARE * max(peaks)
        asked = {"even moments": (target, "even"), "random moments": (target, "random"), EMPTY: (empty, "even")}
        measures = {name: partial(_round, *of, rate, stage.seconds) for name, of in asked.items()}
        rounds = alternately(measures, stage.rounds)
    rows = []
    for name, found in rounds.items():
        p99, p50 = ([each[quantile] for each in found] for quantile in ("p99_ms", "p50_ms"))
        what = f"p99 at {rate:.0f} calls a second, {SHARE:.0%} of the peak, {name}"
        bar = BAR if name == "even moments" else None
        rows.append(ratio_row("d", what, "p50", p99, p50, unit="ms", bar=bar))
    ours, empties = ([each["p99_ms"] / each["p50_ms"] for each in rounds[name]] for name in ("even moments", EMPTY))
    what = f"p99 over p50 at {SHARE:.0%} of the peak"
    rows.append(ratio_row("d", what, "the empty endpoint's", ours, empties, unit="", bar=EMPTY_BAR))
    slowest = [each["p999_ms"] for each in rounds["even moments"]]
    return [*rows, amount_row("d", "p99.9 of the even ones", slowest, unit="ms")]


def _round(target: Target, moments: str, rate: float, seconds: float) -> dict[str, float]:
    command = ["taskset", "--cpu-list", str(CLIENT_CORE), sys.executable, "-m", "tests.benchmarks.serving.paced"]
    command += [target.url, str(target.bodies), "--rate", str(rate), "--seconds", str(seconds), "--moments", moments]
    run = subprocess.run(command, capture_output=True, text=True, check=False, timeout=seconds + 90)
    if run.returncode:
        raise SystemExit(f"paced load failed: {run.stderr[-500:]}")
    found: dict[str, float] = json.loads(run.stdout)
    if found["refused"]:
        raise SystemExit(f"paced load: {found}, expected every call to be answered 200")
    return found
