"""What all studies share: options, context, findings, and writing of results. Arms are compared in `compare`.

To add a study:

1. Write its config: a frozen dataclass. Each field is `name: type = option(default, help=...)`, or `trace_option()` and
   another function below. A field may be `bool`, `int`, `float`, `str`, `Path`, `Literal` or `StrEnum`; `X | None`
   makes the option optional, `tuple[X, ...]` makes it repeatable.
2. Write `run(config, context) -> Findings`. `context` opens the lake and has the number of threads, the engine, the
   folders of the settings, and `talk` for progress messages. Run arms on the engine with `compare.compare`.
3. Declare `Study(name=..., config=..., run=..., takes=(...))` in the folder's `study.py`, and add an entry to
   `registry.STUDIES`.
"""

import json
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Final, Generic, Literal, NoReturn, TypeVar

import polars as pl

from pipelines.engine.engine import Engine, Local
from pipelines.errors import BadUsage
from pipelines.options import option as option

if TYPE_CHECKING:
    import altair as alt

    from pipelines.lake.lake import Lake

__all__ = ["Context", "Findings", "Study", "rendered", "write"]

Row = dict[str, object]
DrawChart = Callable[[], "alt.TopLevelMixin"]
Config = TypeVar("Config")

SEED: Final = "seed"


def trace_option() -> str | None:
    """Declare `--trace`; if it is not given, `Context.trace` chooses the trace."""
    return option(None, help="Name of the trace in the lake.", shown="TAUT_TRACE, else the only one")


def cluster_option() -> str | None:
    """Declare `--cluster`, which restricts a study to one cluster of the trace."""
    return option(None, help="Only this cluster of the trace.", shown="all of them")


def seed_option(default: int = 0) -> int:
    """Declare `--seed`: the random seed, or the first of several."""
    return option(default, help="The first seed of everything random.", minimum=0, maximum=2**31)


def seeds_option(default: int) -> int:
    """Declare `--seeds`, the number of seeds: at least two, which an interval needs."""
    return option(default, help="Seeds of every setting, from --seed on.", minimum=2, maximum=1000)


def energy_option() -> Path | None:
    """Declare `--energy`; if it is not given, the folder is `Context.energy`."""
    return option(
        None,
        help="Folder of measured watts, speeds, grid carbon and prices.",
        shown="TAUT_ENERGY, else ../shared/energy",
    )


def _absent(*_: object) -> NoReturn:
    raise BadUsage("this study opens no lake here")


@dataclass(frozen=True, slots=True, kw_only=True)
class Context:
    """What a study may use besides its config; the defaults suffice for a study that reads no lake.

    `lake` opens the lake once; `trace` returns the name of the trace to use: the given one or, for None, that of the
    settings or the only one. `energy` and `traces` are the folders of energy measurements and of published traces.
    `engine` runs the simulations, and `talk` reports progress.
    """

    lake: "Callable[[], Lake]" = _absent
    trace: Callable[[str | None], str] = _absent
    energy: Path = Path()
    traces: Path | None = None
    threads: int = 1
    engine: Engine = field(default_factory=Local)
    talk: Callable[[str], None] = lambda _: None


@dataclass(frozen=True, slots=True, kw_only=True)
class Findings:
    """The result of a study: tables by title, charts and data frames to save by file name, and notes on assumptions.

    `claims` compare results with published or expected values, and are the first table.
    """

    study: str
    trace: str
    tables: Mapping[str, list[Row]]
    claims: Sequence[Row] = ()
    charts: Mapping[str, DrawChart] = field(default_factory=dict)
    frames: Mapping[str, pl.DataFrame] = field(default_factory=dict)
    notes: Sequence[str] = ()

    def every_table(self) -> dict[str, list[Row]]:
        """Return all tables by title, the claims (if any) first."""
        return {**({"claims": list(self.claims)} if self.claims else {}), **self.tables}

    def rows(self) -> list[Row]:
        """Return the rows for JSON and CSV: those of all tables, with their table's title."""
        of = {"study": self.study, "trace": self.trace}
        return [{**of, "table": title, **row} for title, rows in self.every_table().items() for row in rows]


@dataclass(frozen=True, slots=True, kw_only=True)
class Study(Generic[Config]):
    """A study: its name, its config class, and the function that runs it.

    `arms` describes in words each alternative that the study compares, by name. `takes` names the shared options that
    the study has besides its config; every study has `--out` and `--format`.
    """

    name: str
    config: type[Config]
    run: Callable[[Config, Context], Findings]
    arms: Mapping[str, str] = field(default_factory=dict)
    takes: Sequence[Literal["lake", "threads", "engine"]] = ()


def write(findings: Findings, folder: Path) -> list[Path]:
    """Write rows and notes to `rows.json`, every frame as Parquet, and each chart as HTML, SVG and PNG.

    Return the paths of the files. NaN and infinite values are null in `rows.json`.
    """
    from pipelines.report.panels import saved

    folder.mkdir(parents=True, exist_ok=True)
    rows = [{name: _finite(value) for name, value in row.items()} for row in findings.rows()]
    book = {"notes": list(findings.notes), "rows": rows}
    text = json.dumps(book, indent=1, ensure_ascii=False, allow_nan=False)
    written = [folder / "rows.json"]
    written[0].write_text(text + "\n", encoding="utf-8", newline="\n")
    for name, frame in findings.frames.items():
        frame.write_parquet(folder / f"{name}.parquet")
        written.append(folder / f"{name}.parquet")
    for name, draw in findings.charts.items():
        written += saved(draw(), folder, name)
    return written


def _finite(value: object) -> object:
    return None if isinstance(value, float) and not math.isfinite(value) else value


def rendered(rows: Sequence[Row]) -> list[Row]:
    """Return rows for the screen, with each value and its interval (`_lo`, `_hi`) in one cell.

    >>> rendered([{"wait_s": 12.34, "wait_s_lo": 10.0, "wait_s_hi": 14.68}])
    [{'wait_s': '12.3 [10, 14.7]'}]
    """
    found: list[Row] = []
    for row in rows:
        ends = {name: (row[f"{name}_lo"], row[f"{name}_hi"]) for name in row if f"{name}_lo" in row}
        hidden = {f"{name}{end}" for name in ends for end in ("_lo", "_hi")}
        found.append({name: _in_one(row[name], ends.get(name)) for name in row if name not in hidden})
    return found


def _in_one(value: object, ends: tuple[object, object] | None) -> object:
    if ends is None or not isinstance(value, float):
        return value
    told = [f"{end:.3g}" for end in ends if isinstance(end, float) and not math.isnan(end)]
    return f"{value:.3g} [{', '.join(told)}]" if told else f"{value:.3g}"
