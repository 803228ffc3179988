"""Show progress on stderr: bars with remaining time on a terminal; lines or nothing if stderr is none."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from typing import Final

from rich.console import Console
from rich.progress import (
    BarColumn,
    DownloadColumn,
    MofNCompleteColumn,
    Progress,
    ProgressColumn,
    TaskID,
    TextColumn,
    TimeRemainingColumn,
    TransferSpeedColumn,
)

COMPILING: Final = "compiling an inner loop for this machine: up to a minute; later runs use the cache"

Report = Callable[[str, int, int | None], None]
"""Takes a text, the number of finished bytes or parts, and their total number (None if unknown)."""


@contextmanager
def _bars(*columns: ProgressColumn, title: str = "", each: bool = False) -> Iterator[Report]:
    """Yield a callback that draws one bar, or with `each` a bar for each text; without a terminal, print the title."""
    console = Console(stderr=True)
    if title and not console.is_terminal:
        console.print(title, highlight=False)
    described = (TextColumn("{task.description}"), BarColumn(), *columns)
    with Progress(*described, console=console, disable=not console.is_terminal) as bars:
        tasks: dict[str, TaskID] = {}

        def report(text: str, done: int, total: int | None) -> None:
            key = text if each else title
            if key not in tasks:
                tasks[key] = bars.add_task(text, total=total or None)
            bars.update(tasks[key], description=text, completed=done, total=total or None)

        yield report


def byte_progress(title: str = "", *, each: bool = False) -> AbstractContextManager[Report]:
    """Return a callback for bytes that draws one bar, or with `each` a bar for each file."""
    return _bars(DownloadColumn(), TransferSpeedColumn(), TimeRemainingColumn(), title=title, each=each)


def counting_progress() -> AbstractContextManager[Report]:
    """Return a callback for parts that draws one bar; nothing if stderr is no terminal."""
    return _bars(MofNCompleteColumn(), TimeRemainingColumn())


def watched(title: str) -> Callable[[Sequence[str]], Iterator[str]]:
    """Return an iteration over names that draws a bar with the time left; nothing without a terminal."""

    def watch(names: Sequence[str]) -> Iterator[str]:
        with counting_progress() as report:
            for done, name in enumerate(names):
                report(f"{title} {name}", done, len(names))
                yield name
                report(f"{title} {name}", done + 1, len(names))

    return watch


@contextmanager
def step(title: str) -> Iterator[None]:
    """Show a spinner with `title` while the block runs; without a terminal print the title."""
    console = Console(stderr=True)
    if not console.is_terminal:
        console.print(title, highlight=False)
        yield
        return
    with console.status(title):
        yield


@contextmanager
def compiling() -> Iterator[None]:
    """Print a line if numba compiles code within the block, as on the first run; later runs use cached code."""
    from scheduler_core.kernels.kernel import compiling_told

    console = Console(stderr=True, soft_wrap=True)
    with compiling_told(lambda: console.print(COMPILING, highlight=False)):
        yield
