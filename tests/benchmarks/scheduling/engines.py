"""The event loops timed: jobs a second with all metrics, and peak memory. How the cost grows is in `growth`.

Seconds are those of the one core that the work takes (its CPU time), so others on the machine do not count.
Called by `tests.benchmarks.scheduling`.
"""

import resource
import subprocess
import sys
import time
from collections.abc import Sequence
from typing import Final

from pipelines.simulation.engine.simulator import Engine, simulate
from pipelines.simulation.engine.workload import Workload
from pipelines.simulation.measures.metrics import summarise
from scheduler_core.cluster import Machine
from scheduler_core.queueing import Discipline
from tests.benchmarks.scheduling.arrivals import PHILLY, SMALL, drawn, philly_like, philly_recorded
from tests.benchmarks.serving.figures import Bar, Row, amount_row

ROUNDS: Final = 3
MILLION: Final = 1_000_000
BACKLOG_LOAD: Final = 1.3
PLAIN_JOBS: Final = 2_000

PUBLISHED_RATES: Final = {"fifo": 154.0, "sjf": 393.0}
"""Jobs a second of Alibaba's public simulator, run on 10 000 real PAI tasks on two such cores: told beside, not run."""

RATE: Final = "jobs/s of a core"


def seconds(workload: Workload, machines: Sequence[Machine], discipline: Discipline, engine: Engine) -> float:
    """Time one simulation with all its metrics."""
    begin = time.process_time()
    summarise(simulate(workload, machines, discipline, engine=engine))
    return time.process_time() - begin


def rates(
    workload: Workload, machines: Sequence[Machine], discipline: Discipline, engine: Engine = "compiled"
) -> list[float]:
    """Return jobs a second, of every round."""
    return [len(workload) / seconds(workload, machines, discipline, engine) for _ in range(ROUNDS)]


def compiled_first() -> Row:
    """Time the first simulation of this process: compiled anew, or read from the cache."""
    return amount_row(
        "a", "first call (compiles unless cached)", [seconds(drawn(10), SMALL, Discipline(), "compiled")], unit="s"
    )


def small_rows() -> list[Row]:
    """Time a million jobs on the paper's cluster, the plain engine on fewer, and tell the published rates."""
    fifo = Discipline()
    rows = [
        compiled_first(),
        amount_row(
            "a",
            "fifo, best fit, 4 machines, load 0.9, 1 000 000 jobs, with metrics",
            rates(drawn(MILLION), SMALL, fifo),
            unit=RATE,
            bar=Bar(side="at least", value=300_000),
        ),
    ]
    for policy, published in PUBLISHED_RATES.items():
        found = rates(drawn(PLAIN_JOBS), SMALL, Discipline(policy=policy), "python")
        rows.append(amount_row("a", f"{policy}: the plain engine, {PLAIN_JOBS} jobs", found, unit=RATE))
        rows.append(
            amount_row("a", f"{policy}: Alibaba's simulator, 10 000 PAI tasks (published)", [published], unit="jobs/s")
        )
    return rows


def philly_rows() -> list[Row]:
    """Time every order under backlog on Philly's machines."""
    recorded = philly_recorded(BACKLOG_LOAD)
    jobs = philly_like(100_000, BACKLOG_LOAD) if recorded is None else recorded
    which = f"{len(jobs)} {'synthetic' if recorded is None else 'recorded'} jobs at load {BACKLOG_LOAD}"
    disciplines = {
        "fifo": Discipline(),
        "sjf": Discipline(policy="sjf"),
        "drf": Discipline(policy="drf"),
        "fifo, nobody passes": Discipline(overtakes=0),
        "sjf, EASY": Discipline(policy="sjf", backfill="easy"),
        "srtf, preempting": Discipline(policy="srtf"),
        "las, preempting": Discipline(policy="las"),
    }
    bar = Bar(side="at least", value=10_000)
    return [
        amount_row(
            "b",
            f"{name}, 552 machines, {which}",
            rates(jobs, PHILLY, discipline),
            unit=RATE,
            bar=bar if name == "fifo" else None,
        )
        for name, discipline in disciplines.items()
    ]


def memory_rows() -> list[Row]:
    """Measure the peak of a process that simulates a million jobs and sums them up."""
    asked = [sys.executable, "-m", "tests.benchmarks.scheduling.engines"]
    told = subprocess.run(asked, check=True, capture_output=True, text=True, timeout=600)
    bar = Bar(side="under", value=1024.0)
    return [amount_row("d", "peak memory, 1 000 000 jobs with metrics", [float(told.stdout)], unit="MiB", bar=bar)]


if __name__ == "__main__":
    seconds(drawn(MILLION), SMALL, Discipline(), "compiled")
    print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024)
