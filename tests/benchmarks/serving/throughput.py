"""One-job predictions at full load: taut against an empty endpoint and one that only walks the trees.

All servers run at once, idle but for the one that is called. `mlflow models serve` and MLServer were compared in the
same way at commit 8d271fbb (docs/benchmarks.md).
"""

import urllib.request
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from statistics import median
from typing import Final

from tests.benchmarks.harness import Bar, Row, alternately, ratio_row
from tests.benchmarks.serving.stage import (
    SPREAD_OF_JOBS,
    Load,
    Stage,
    Target,
    empty_server,
    full_load,
    one_job_bodies,
    taut_server,
    write_bodies,
)

EMPTY: Final = "empty FastAPI endpoint"
TREES: Final = "an endpoint that only walks the trees"
"""What an endpoint in one Python process could reach at most."""
RUN_TIME: Final = "taut, run time"
FULL: Final = "taut, run time and peak use"
EMPTY_BAR: Final = Bar(side="at least", value=0.45)
WARM_S: Final = 2.0


def empty_rows(stage: Stage) -> list[Row]:
    """Compare taut, its full answer, and the trees alone with an empty endpoint."""
    jobs = stage.models.jobs(SPREAD_OF_JOBS)
    run_time, full = one_job_bodies(jobs, outputs=["run_time"]), one_job_bodies(jobs)
    with taut_server(stage) as taut, empty_server(stage) as empty:
        called = (
            (RUN_TIME, taut, "/v1/predictions", run_time),
            (FULL, taut, "/v1/predictions", full),
            (EMPTY, empty, "/empty", run_time),
            (TREES, empty, "/trees", run_time),
        )
        targets = []
        for name, server, path, bodies in called:
            file = write_bodies(bodies, stage.scratch / f"{name}.txt")
            targets.append(Target(name=name, url=server.url + path, bodies=file, pid=server.pid))
        loads = _loads(stage, targets)
    bars = {RUN_TIME: EMPTY_BAR, FULL: None, TREES: None}
    return [_row(name, EMPTY, loads, bar) for name, bar in bars.items()]


def _loads(stage: Stage, targets: Sequence[Target]) -> dict[str, list[Load]]:
    """Warm all up, then load each in turn."""
    for target in targets:
        _answer(target.url, target.bodies.read_bytes().splitlines()[0])
        full_load(target, seconds=WARM_S)
    measures: dict[str, Callable[[], Load]] = {
        target.name: partial(full_load, target, seconds=stage.seconds) for target in targets
    }
    return alternately(measures, stage.rounds)


def _row(name: str, base: str, loads: Mapping[str, Sequence[Load]], bar: Bar | None) -> Row:
    """Compare rates; `by_cpu` is the ratio of processor time, which other load on the machine does not change."""
    rates = ([each.per_s for each in loads[who]] for who in (name, base))
    by_cpu = median(other.cpu_us / one.cpu_us for one, other in zip(loads[name], loads[base], strict=True))
    return ratio_row(f"one-job calls: {name}", base, *rates, unit="1/s", bar=bar) | {"by_cpu": by_cpu}


def _answer(url: str, body: bytes) -> bytes:
    call = urllib.request.Request(url, data=body, headers={"Content-Type": "application/json"})
    with urllib.request.urlopen(call, timeout=30) as answer:
        return bytes(answer.read())
