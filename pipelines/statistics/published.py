"""Published numbers of the full traces and of the samples, as `data/published/*.toml` prints them.

What a number is of (`of`), which statistic gives it, and where it was published; nothing is computed here.
Called by `verification`.
"""

import re
import tomllib
from dataclasses import dataclass
from decimal import Decimal
from pathlib import Path
from typing import Final

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from pipelines.errors import SourceError

FOLDER: Final = Path(__file__).resolve().parents[2] / "data" / "published"

UNITS: Final = {"": 1.0, "%": 100.0, "h": 1 / 3600, "GPU-s": 3600.0}
"""Units a number is printed in: what a statistic's own (share, seconds, GPU-hours) is multiplied by."""

_NUMBER: Final = re.compile(r"(?P<above>>?) ?(?P<digits>[0-9.,]*[0-9](?:e[+-]?[0-9]+)?) ?(?P<unit>\S*)")


class _Entry(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class Population(_Entry):
    """Which rows a number is of: so many in these published tables of one trace and cluster, or all of its parts."""

    trace: str
    what: str
    cluster: str | None = None
    rows: dict[str, int] = Field(default_factory=dict)
    period: tuple[str, str] | None = None
    parts: tuple[str, ...] = ()


class PublishedRow(_Entry):
    """Printed numbers, by column, that one row of a statistic must give; several rows are added up with `add`."""

    of: str
    statistic: str
    by: tuple[str, ...] = ()
    where: dict[str, str | int | float | list[str | int | float]] = Field(default_factory=dict)
    add: bool = False
    about: float | None = Field(default=None, gt=0, description="relative tolerance, where a figure was read off")
    published: dict[str, str]
    source: str
    note: str | None = None


class Uncomputed(_Entry):
    """A published number that the lake's tables cannot give, and why."""

    of: str
    what: str
    published: str
    why: str
    source: str


class Published(_Entry):
    """Everything published: populations by name, the rows to compare, and those that cannot be."""

    of: dict[str, Population] = Field(default_factory=dict)
    rows: tuple[PublishedRow, ...] = ()
    uncomputed: tuple[Uncomputed, ...] = ()

    @property
    def traces(self) -> list[str]:
        """Return the names of the traces that anything is published of."""
        return sorted({population.trace for population in self.of.values()})


@dataclass(frozen=True, slots=True, kw_only=True)
class Printed:
    """A printed number: its value and unit, half a unit of its last digit, and whether it is only a bound (`> 3`)."""

    value: float
    half_digit: float
    factor: float
    bound: bool


def printed(text: str) -> Printed | None:
    """Read a number as printed; None where the text is none (a checksum, a time).

    >>> printed("1.90 %")
    Printed(value=1.9, half_digit=0.005, factor=100.0, bound=False)
    """
    found = _NUMBER.fullmatch(text)
    if found is None or found["unit"] not in UNITS:
        return None
    number = Decimal(found["digits"].replace(",", ""))
    exponent = int(number.as_tuple().exponent)
    return Printed(
        value=float(number),
        half_digit=float(Decimal(5).scaleb(exponent - 1)),
        factor=UNITS[found["unit"]],
        bound=bool(found["above"]),
    )


def read_published(folder: Path = FOLDER) -> Published:
    """Read every `*.toml` of a folder; populations may be named across files.

    Raises
    ------
    SourceError
        If a file is not as this module describes it, or names a population that no file has.
    """
    read = [_read(path) for path in sorted(folder.glob("*.toml"))]
    if not read:
        raise SourceError(f"found no *.toml in {folder}; expected the published numbers that come with taut")
    together = Published(
        of={name: each for one in read for name, each in one.of.items()},
        rows=tuple(row for one in read for row in one.rows),
        uncomputed=tuple(row for one in read for row in one.uncomputed),
    )
    named = {row.of for row in together.rows} | {row.of for row in together.uncomputed}
    named |= {part for population in together.of.values() for part in population.parts}
    if unknown := sorted(named - set(together.of)):
        raise SourceError(f"{folder}: found numbers of {unknown[0]!r}; expected one of {', '.join(together.of)}")
    return together


def _read(path: Path) -> Published:
    try:
        return Published.model_validate(tomllib.loads(path.read_text(encoding="utf-8")))
    except (tomllib.TOMLDecodeError, ValidationError, UnicodeDecodeError) as error:
        said = " ".join(str(error).split())[:300]
        raise SourceError(f"{path}: {said}; expected published numbers as the files beside it hold them") from error
