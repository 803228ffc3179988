"""Read the published numbers of the full traces and the samples from `data/published/*.toml`.

Each number has a population (`of`), the statistic that computes it, and its source; nothing is computed here.
"""

import re
import tomllib
from dataclasses import dataclass
from decimal import Decimal
from pathlib import Path
from typing import Final

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from pipelines.errors import SourceError

__all__ = ["read_published"]

FOLDER: Final = Path(__file__).resolve().parents[2] / "data" / "published"

UNITS: Final = {"": 1.0, "%": 100.0, "h": 1 / 3600, "GPU-s": 3600.0}
"""Factor from a statistic's own unit (share, seconds, GPU-hours) to each unit used in print."""

_NUMBER: Final = re.compile(r"(?P<above>>?) ?(?P<digits>[0-9.,]*[0-9](?:e[+-]?[0-9]+)?) ?(?P<unit>\S*)")


class _Entry(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class Population(_Entry):
    """The rows that a number describes: a trace, cluster and row counts of tables, or a union of populations."""

    trace: str
    what: str
    cluster: str | None = None
    rows: dict[str, int] = Field(default_factory=dict)
    period: tuple[str, str] | None = None
    parts: tuple[str, ...] = ()


class PublishedRow(_Entry):
    """Published numbers by column, to be reproduced by one row of a statistic or, with `add`, by a sum of rows."""

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
    """A published number that the lake's tables cannot reproduce, and the reason."""

    of: str
    what: str
    published: str
    why: str
    source: str


class Published(_Entry):
    """All published numbers: populations by name, rows to compare, and numbers that cannot be computed."""

    of: dict[str, Population] = Field(default_factory=dict)
    rows: tuple[PublishedRow, ...] = ()
    uncomputed: tuple[Uncomputed, ...] = ()

    @property
    def traces(self) -> list[str]:
        """Return the names of the traces with published numbers."""
        return sorted({population.trace for population in self.of.values()})


@dataclass(frozen=True, slots=True, kw_only=True)
class Printed:
    """A printed number: value, half a unit of its last digit, unit factor, and whether it is a lower bound (`> 3`)."""

    value: float
    half_digit: float
    factor: float
    bound: bool


def printed(text: str) -> Printed | None:
    """Parse a printed number; return None if the text is not a number (a checksum, a time).

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
    """Read every `*.toml` file in a folder; a file may refer to populations of another file."""
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
        reason = " ".join(str(error).split())[:300]
        raise SourceError(f"{path}: {reason}; expected published numbers in the format of its neighbours") from error
