"""The manifest of one trace: what went in, what came out, what was quarantined and by which rule.

It is what makes an ingest final: readers take only the files it names. Reading and writing files is not here.
Called by `pipelines.lake.ingest` and `pipelines.lake.lake`.
"""

import json
from collections.abc import Iterable, Iterator
from dataclasses import asdict, dataclass
from typing import Final

from features.vocabulary import ZONES
from pipelines.errors import LakeError

FORMAT_VERSION = 1
REPRESENTATIVES_BEFORE: Final = {"openb": "default"}
"""What older manifests do not tell: of which sources clusters are alternatives, and which one stands for the trace."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Input:
    """One published file, by what is in it; its path is relative to the folder that was ingested."""

    file: str
    bytes: int
    sha256: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Account:
    """Where the rows of one published table went: `rows_in == rows_good + sum(quarantined)`.

    `feeds` is the canonical table that the good rows are in, one for one or folded into fewer rows.
    """

    cluster: str
    table: str
    file: str | None
    feeds: str
    rows_in: int
    rows_good: int
    quarantined: dict[str, int]

    @property
    def rows_quarantined(self) -> int:
        """Return how many rows went to quarantine."""
        return sum(self.quarantined.values())

    def close(self) -> "Account":
        """Return the account if it adds up.

        Raises
        ------
        LakeError
            If rows are missing: a defect of the ingest, never of the file.
        """
        found = self.rows_good + self.rows_quarantined
        if found != self.rows_in:
            message = f"{self.file}: {self.rows_in} rows in, but {self.rows_good} good and {self.rows_quarantined}"
            raise LakeError(f"{message} quarantined make {found}; nothing was committed. Please report this file.")
        return self


@dataclass(frozen=True, slots=True, kw_only=True)
class Output:
    """One Parquet file of a canonical table (or of the quarantine); its path is relative to the lake."""

    table: str
    cluster: str
    path: str
    rows: int
    bytes: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Manifest:
    """Everything about one trace in the lake. The same files and options make the same manifest, to the byte.

    Where clusters are alternatives of each other (each a list of its own, of the same machines), `representative` is
    the one that stands for the trace; null: they are its parts, and may be added up.
    """

    trace: str
    source: str
    inputs: tuple[Input, ...]
    accounts: tuple[Account, ...]
    outputs: tuple[Output, ...]
    warnings: tuple[str, ...]
    representative: str | None = None
    format_version: int = FORMAT_VERSION

    @property
    def clusters(self) -> tuple[str, ...]:
        """Return the names of the clusters, sorted."""
        return tuple(sorted({account.cluster for account in self.accounts}))

    @property
    def zone(self) -> str:
        """Return the time zone in which hours and days are read: its format's, of own formats as the name begins."""
        named = next((zone for start, zone in ZONES.items() if self.trace.startswith(start)), "UTC")
        return ZONES.get(self.source, named)

    @property
    def rows_in(self) -> int:
        """Return how many rows were read."""
        return sum(a.rows_in for a in self.accounts)

    @property
    def rows_quarantined(self) -> int:
        """Return how many rows went to quarantine."""
        return sum(a.rows_quarantined for a in self.accounts)

    def same_ingest(self, source: str, inputs: tuple[Input, ...]) -> bool:
        """Tell whether ingesting these inputs again would write this manifest."""
        return (self.source, self.inputs, self.format_version) == (source, inputs, FORMAT_VERSION)

    def rows_out(self, table: str, cluster: str | None = None) -> int:
        """Return the rows of a canonical table, of one cluster or of all."""
        return sum(o.rows for o in self.outputs if o.table == table and cluster in (None, o.cluster))

    def to_json(self) -> str:
        """Return the manifest as JSON text."""
        return json.dumps(asdict(self), indent=2) + "\n"


def chosen(preferred: str | None, clusters: Iterable[str]) -> str | None:
    """Return which of several alternatives stands for the trace: the preferred one, else the first by name.

    >>> chosen("default", ["b", "default", "a"]), chosen("default", ["b", "a"]), chosen(None, ["b", "a"])
    ('default', 'a', None)
    """
    there = set(clusters)
    if preferred is None or preferred in there:
        return preferred
    return min(there, default=None)


def from_json(text: str, trace: str) -> Manifest:
    """Read the manifest of a trace.

    Raises
    ------
    LakeError
        If the text is not a manifest.
    """
    try:
        fields = json.loads(text)
        for name, kind in (("inputs", Input), ("accounts", Account), ("outputs", Output)):
            fields[name] = tuple(kind(**item) for item in fields[name])
        if "representative" not in fields:
            clusters = [account.cluster for account in fields["accounts"]]
            fields["representative"] = chosen(REPRESENTATIVES_BEFORE.get(fields["source"]), clusters)
        return Manifest(**(fields | {"warnings": tuple(fields["warnings"])}))
    except (ValueError, KeyError, TypeError) as error:
        raise LakeError(f"the manifest of {trace!r} cannot be read ({error}); ingest the trace again") from error


def flat(manifest: Manifest) -> Iterator[dict[str, str | int | None]]:
    """Yield one flat row per published table: rows in, good, quarantined by rule, and the rows they feed."""
    for account in manifest.accounts:
        yield {
            "trace": manifest.trace,
            "cluster": account.cluster,
            "table": account.table,
            "file": account.file,
            "rows_in": account.rows_in,
            "rows_good": account.rows_good,
            "rows_quarantined": account.rows_quarantined,
            "rules": " ".join(f"{rule}={rows}" for rule, rows in sorted(account.quarantined.items())),
            "feeds": account.feeds,
            "rows_out": manifest.rows_out(account.feeds, account.cluster),
        }
