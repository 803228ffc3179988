"""Show progress on stderr: bars and spinners on a terminal; single lines or nothing if stderr is no terminal.

Called by the command files of `pipelines.cli`.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Final

from rich.console import Console
from rich.progress import (
    BarColumn,
    DownloadColumn,
    MofNCompleteColumn,
    Progress,
    TaskID,
    TextColumn,
    TransferSpeedColumn,
)

COMPILING: Final = "compiling an inner loop for this machine: up to a minute; later runs use the cache"


@contextmanager
def transfer_progress() -> Iterator[Callable[[str, int, int | None], None]]:
    """Yield a callback `(file, bytes so far, total bytes or None)` that draws one bar for each file."""
    console = Console(stderr=True)
    columns = (TextColumn("{task.description}"), BarColumn(), DownloadColumn(), TransferSpeedColumn())
    with Progress(*columns, console=console, disable=not console.is_terminal) as bars:
        tasks: dict[str, TaskID] = {}

        def report(name: str, done: int, total: int | None) -> None:
            if name not in tasks:
                tasks[name] = bars.add_task(name, total=total)
            bars.update(tasks[name], completed=done, total=total)

        yield report


@contextmanager
def counting_progress(total: int) -> Iterator[Callable[[int, str], None]]:
    """Yield a callback `(number done, text)` that draws one bar up to `total`; nothing if stderr is no terminal."""
    console = Console(stderr=True)
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn())
    with Progress(*columns, console=console, disable=not console.is_terminal) as bars:
        task = bars.add_task("", total=total)
        yield lambda done, text: bars.update(task, completed=done, description=text)


@contextmanager
def step(title: str) -> Iterator[None]:
    """Show a spinner with `title` while the block runs."""
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
    from pipelines.simulation.engine.compiled.notice import compiling_told

    console = Console(stderr=True, soft_wrap=True)
    with compiling_told(lambda: console.print(COMPILING, highlight=False)):
        yield
