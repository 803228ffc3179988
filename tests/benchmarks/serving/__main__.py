"""The prediction service against its bars: `make bench-serve`; the server has one core, the load the other.

Run by hand: `python -m tests.benchmarks.serving --only empty,latency`.
"""

from collections.abc import Callable, Sequence
from functools import partial
from typing import Final

from tests.benchmarks.harness import Row, measure, parser_of
from tests.benchmarks.serving.stage import Stage, add_cache, staged
from tests.benchmarks.serving.throughput import empty_rows
from tests.benchmarks.serving.worker import batch_rows, latency_rows, memory_rows, ready_rows, schedule_rows

PARTS: Final[dict[str, Callable[[Stage], list[Row]]]] = {
    "empty": empty_rows,
    "latency": latency_rows,
    "batch": batch_rows,
    "schedule": schedule_rows,
    "memory": memory_rows,
    "ready": ready_rows,
}


def main(argv: Sequence[str] | None = None) -> None:
    """Measure, and print the table."""
    parser = parser_of("serving", __doc__, PARTS)
    parser.add_argument("--rounds", type=int, default=5, help="alternating rounds (default: 5)")
    parser.add_argument("--seconds", type=float, default=3.0, help="load of one round (default: 3)")
    add_cache(parser)
    options = parser.parse_args(argv)
    with staged(options) as stage:
        measure({name: partial(part, stage) for name, part in PARTS.items()}, options)


if __name__ == "__main__":
    main()
