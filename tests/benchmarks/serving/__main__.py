"""The prediction service against its bars: `make bench-serve`; the server has one core, the load the other.

Run by hand: `python -m tests.benchmarks.serving --only a,d`.
"""

from collections.abc import Callable, Sequence
from functools import partial
from typing import Final

from tests.benchmarks.harness import Row, measure, parser_of
from tests.benchmarks.serving.stage import Stage, add_cache, staged
from tests.benchmarks.serving.throughput import empty_rows, mlflow_rows, mlserver_rows
from tests.benchmarks.serving.worker import batch_rows, latency_rows, memory_rows, ready_rows

PARTS: Final[dict[str, Callable[[Stage], list[Row]]]] = {
    "a": empty_rows,
    "b": mlflow_rows,
    "c": mlserver_rows,
    "d": latency_rows,
    "e": batch_rows,
    "f": memory_rows,
    "g": ready_rows,
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
