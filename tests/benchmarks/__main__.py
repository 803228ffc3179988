"""The benchmarks that need no preparation, one after the other: `make bench`; `--only PART` runs one.

Each has options of its own: `python -m tests.benchmarks.PART --help`.
"""

from collections.abc import Callable, Sequence
from typing import Final

from tests.benchmarks import energy, scheduling, sharing, slurm
from tests.benchmarks.harness import parser_of

PARTS: Final[dict[str, Callable[[Sequence[str]], None]]] = {
    "scheduling": scheduling.main,
    "sharing": sharing.main,
    "energy": energy.main,
    "slurm": slurm.main,
}
ALONE: Final = ("ingest", "kubernetes", "prometheus", "scale", "serving", "serving.soak")
"""Benchmarks that run only by themselves."""


def main(argv: Sequence[str] | None = None) -> None:
    """Run the chosen parts in order, all by default."""
    parser = parser_of("", __doc__, PARTS)
    parser.epilog = f"Run by themselves: {', '.join(f'tests.benchmarks.{name}' for name in ALONE)}."
    options = parser.parse_args(argv)
    for name in options.only or PARTS:
        PARTS[name](["--format", options.format])


if __name__ == "__main__":
    main()
