"""What a worker with ten models weighs, and how soon it is ready.

Parts f and g of `tests.benchmarks.serving`.
"""

from collections.abc import Mapping
from typing import Final

from tests.benchmarks.serving.batches import recommended_s
from tests.benchmarks.serving.figures import Bar, Row, amount_row
from tests.benchmarks.serving.processes import Weight, cpu_s, weights
from tests.benchmarks.serving.stage import Stage, taut_server

MEMORY_BAR: Final = Bar(side="under", value=400.0)
COLD_STARTS: Final = 2
READY_BAR: Final = Bar(side="under", value=3.0)


def memory_rows(stage: Stage) -> list[Row]:
    """Return the memory of the worker, ready, and after calls of a thousand jobs; then of all that runs beside it."""
    ready, after, others = [], [], []
    for _ in range(stage.rounds):
        with taut_server(stage) as server:
            ready.append(_worker(weights(server.pid)))
            for _ in range(3):
                recommended_s(stage, server.url)
            found = weights(server.pid)
            after.append(_worker(found))
            others.append(sum(each.pss_mib for each in found))
    named = {
        "worker with ten models, ready: resident": ([each.rss_mib for each in ready], MEMORY_BAR),
        "the same: proportional": ([each.pss_mib for each in ready], None),
        "after calls of 1000 jobs: resident": ([each.rss_mib for each in after], MEMORY_BAR),
        "all processes of the service: proportional": (others, None),
    }
    return [amount_row("f", what, found, unit="MiB", bar=bar) for what, (found, bar) in named.items()]


def ready_rows(stage: Stage) -> list[Row]:
    """Return how long it takes from the process's start to the first 200 of `/readyz`, and with nothing compiled."""
    with taut_server(stage):
        pass  # Whatever is compiled once is compiled now.
    warm = [_start(stage, {}) for _ in range(stage.rounds)]
    cold = [_start(stage, {"NUMBA_CACHE_DIR": str(stage.scratch / f"compiled-{n}")}) for n in range(COLD_STARTS)]
    rows = []
    for what, starts, bar in (
        ("start to ready with ten models", warm, READY_BAR),
        ("the same, with nothing compiled yet", cold, None),
    ):
        rows.append(amount_row("g", what, [taken for taken, _ in starts], unit="s", bar=bar))
        rows.append(amount_row("g", f"{what}: processor time", [spent for _, spent in starts], unit="s"))
    return rows


def _start(stage: Stage, env: Mapping[str, str]) -> tuple[float, float]:
    """Start once; return the seconds until ready, and those that the processor had to work until then."""
    with taut_server(stage, env=env) as server:
        return server.ready_s, cpu_s(server.pid)


def _worker(found: list[Weight]) -> Weight:
    """Return the heaviest process: with one worker, the one that holds the models."""
    return max(found, key=lambda each: each.rss_mib)
