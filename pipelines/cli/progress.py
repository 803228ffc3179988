"""Show progress on stderr: bars with rate and remaining time on a terminal; lines or nothing if stderr is none."""

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
    Task,
    TaskID,
    TextColumn,
    TimeRemainingColumn,
    TransferSpeedColumn,
)
from rich.text import Text

COMPILING: Final = "compiling an inner loop for this machine: up to a minute; later runs use the cache"


class _PerMinute(ProgressColumn):
    """The rate of a task per minute."""

    def render(self, task: Task) -> Text:
        """Return the rate, or a dash before the first part is done."""
        rate = task.finished_speed or task.speed
        return Text("-/min" if rate is None else f"{60.0 * rate:.1f}/min")


def _bars(*columns: ProgressColumn, title: str | None = None) -> AbstractContextManager[Progress]:
    """Return bars with these columns; without a terminal they draw nothing, and a title is printed once."""
    console = Console(stderr=True)
    if title is not None and not console.is_terminal:
        console.print(title, highlight=False)
    return Progress(
        TextColumn("{task.description}"), BarColumn(), *columns, console=console, disable=not console.is_terminal
    )


def _byte_columns() -> tuple[ProgressColumn, ...]:
    return DownloadColumn(), TransferSpeedColumn(), TimeRemainingColumn()


@contextmanager
def transfer_progress() -> Iterator[Callable[[str, int, int | None], None]]:
    """Yield a callback `(file, bytes so far, total bytes or None)` that draws one bar for each file."""
    with _bars(*_byte_columns()) as bars:
        tasks: dict[str, TaskID] = {}

        def report(name: str, done: int, total: int | None) -> None:
            if name not in tasks:
                tasks[name] = bars.add_task(name, total=total)
            bars.update(tasks[name], completed=done, total=total)

        yield report


@contextmanager
def reading_progress(title: str) -> Iterator[Callable[[str, int, int], None]]:
    """Yield a callback `(text, bytes so far, total bytes)` that draws one bar; without a terminal print the title."""
    with _bars(*_byte_columns(), title=title) as bars:
        task = bars.add_task(title, total=None)
        yield lambda text, done, total: bars.update(task, description=text, completed=done, total=total or None)


def watched(title: str) -> Callable[[Sequence[str]], Iterator[str]]:
    """Return an iteration over names that draws a bar with the rate and the time left; nothing without a terminal."""

    def watch(names: Sequence[str]) -> Iterator[str]:
        with _bars(MofNCompleteColumn(), _PerMinute(), TimeRemainingColumn()) as bars:
            task = bars.add_task(title, total=len(names))
            for name in names:
                bars.update(task, description=f"{title} {name}")
                yield name
                bars.advance(task)

    return watch


@contextmanager
def counting_progress(total: int) -> Iterator[Callable[[int, str], None]]:
    """Yield a callback `(number done, text)` that draws one bar up to `total`; nothing if stderr is no terminal."""
    with _bars(MofNCompleteColumn()) as bars:
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
    from scheduler_core.kernels.notice import compiling_told

    console = Console(stderr=True, soft_wrap=True)
    with compiling_told(lambda: console.print(COMPILING, highlight=False)):
        yield
