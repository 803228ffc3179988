"""The manifest of one trace (inputs, outputs, row counts), and the signatures that detect changed input files."""

import hashlib
import json
from collections.abc import Iterable, Iterator
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Final

from pipelines.errors import LakeError

__all__ = ["Manifest", "flat"]

FORMAT_VERSION: Final = 2


@dataclass(frozen=True, slots=True, kw_only=True)
class Input:
    """One input file with its size and SHA-256; the path is relative to the ingested folder."""

    file: str
    bytes: int
    sha256: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Account:
    """Row counts of one published table: `rows_in == rows_good + rows_quarantined`.

    `quarantined` counts the rows that break each rule; a row that breaks several counts under each. `feeds` is the
    canonical table to which the good rows contribute; it may aggregate several of them into one row.
    """

    cluster: str
    table: str
    file: str | None
    feeds: str
    rows_in: int
    rows_good: int
    rows_quarantined: int
    quarantined: dict[str, int]

    def close(self) -> "Account":
        """Return these counts after checking that they add up."""
        found = self.rows_good + self.rows_quarantined
        if found != self.rows_in:
            message = f"{self.file}: {self.rows_in} rows in, but {self.rows_good} good and {self.rows_quarantined}"
            raise LakeError(f"{message} quarantined make {found}; nothing was committed. Please report this file.")
        return self


@dataclass(frozen=True, slots=True, kw_only=True)
class Output:
    """One Parquet file of a canonical table or of the quarantine; the path is relative to the lake."""

    table: str
    cluster: str
    path: str
    rows: int
    bytes: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Manifest:
    """The description of one trace in the lake; the same input files and options give the same manifest.

    `representative` is set if the clusters are alternatives (several job lists for the same machines): then
    statistics of the trace use only this cluster. None: the clusters are parts of the trace and may be added up.
    `zone` is the time zone of the trace's local hours and days, and of dates given on the command line.
    """

    trace: str
    source: str
    inputs: tuple[Input, ...]
    accounts: tuple[Account, ...]
    outputs: tuple[Output, ...]
    warnings: tuple[str, ...]
    zone: str
    representative: str | None = None
    format_version: int = FORMAT_VERSION

    @property
    def clusters(self) -> tuple[str, ...]:
        """Return the names of the clusters, sorted."""
        return tuple(sorted({account.cluster for account in self.accounts}))

    @property
    def rows_in(self) -> int:
        """Return the number of rows read."""
        return sum(a.rows_in for a in self.accounts)

    @property
    def rows_quarantined(self) -> int:
        """Return the number of rows in quarantine."""
        return sum(a.rows_quarantined for a in self.accounts)

    def same_ingest(self, source: str, inputs: tuple[Input, ...], zone: str) -> bool:
        """Return whether ingesting these inputs again would give this manifest."""
        now = (source, inputs, zone, FORMAT_VERSION)
        return (self.source, self.inputs, self.zone, self.format_version) == now

    def rows_out(self, table: str, cluster: str | None = None) -> int:
        """Return the number of rows of a canonical table in one cluster, or in all clusters if `cluster` is None."""
        return sum(o.rows for o in self.outputs if o.table == table and cluster in (None, o.cluster))

    def to_json(self) -> str:
        """Return the manifest as JSON text."""
        return json.dumps(asdict(self), indent=2) + "\n"


def chosen(preferred: str | None, clusters: Iterable[str]) -> str | None:
    """Return the cluster that represents the trace: `preferred` if present, else the first by name; None for None."""
    there = set(clusters)
    if preferred is None or preferred in there:
        return preferred
    return min(there, default=None)


def from_json(text: str, trace: str) -> Manifest:
    """Read the manifest of a trace; raise LakeError if it is damaged, or of another format."""
    try:
        fields = json.loads(text)
        if fields["format_version"] != FORMAT_VERSION:
            raise ValueError(f"format {fields['format_version']}; expected {FORMAT_VERSION}")
        for name, kind in (("inputs", Input), ("accounts", Account), ("outputs", _output)):
            fields[name] = tuple(kind(**item) for item in fields[name])
        return Manifest(**(fields | {"warnings": tuple(fields["warnings"])}))
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise LakeError(f"the manifest of {trace!r} cannot be read ({error}); ingest the trace again") from error


def _output(**fields: Any) -> Output:  # values read from JSON
    """Return an output; its path stays in the folder of its table, as the manifest may come from elsewhere."""
    output = Output(**fields)
    folder, *parts = output.path.split("/")
    if folder != output.table or not parts or not all(parts) or {".", ".."} & {folder, *parts}:
        raise ValueError(f"the table file {output.path!r}")
    return output


def flat(manifest: Manifest) -> Iterator[dict[str, str | int | None]]:
    """Yield one flat row per published table: rows in, good, quarantined by rule, and rows of the canonical table."""
    for account in manifest.accounts:
        names = ("cluster", "table", "file", "rows_in", "rows_good", "rows_quarantined")
        yield {
            "trace": manifest.trace,
            **{name: getattr(account, name) for name in names},
            "rules": " ".join(f"{rule}={rows}" for rule, rows in sorted(account.quarantined.items())),
            "feeds": account.feeds,
            "rows_out": manifest.rows_out(account.feeds, account.cluster),
        }


def mark_of(path: Path) -> tuple[int, ...]:
    """Return a file's device, inode, size, mtime and ctime; unlike mtime, ctime cannot be set back by the owner."""
    state = path.stat()
    return (state.st_dev, state.st_ino, state.st_size, state.st_mtime_ns, state.st_ctime_ns)


class Signatures:
    """Marks (see `mark_of`) and digests of a trace's input files; stored next to its manifest, and read if present."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._held: dict[str, tuple[tuple[int, ...], str]] = {}
        self._now: dict[str, tuple[tuple[int, ...], str]] = {}
        with suppress(OSError, ValueError, TypeError, AttributeError):
            held = json.loads(path.read_text()).items()
            self._held = {file: (tuple(mark), str(digest)) for file, (mark, digest) in held}

    def input_of(self, file: str, path: Path) -> Input:
        """Return the file's manifest entry; compute its digest only if its mark changed."""
        mark = mark_of(path)
        held, digest = self._held.get(file, ((), ""))
        if held != mark:
            _, digest = fingerprint(path)
        self._now[file] = (mark, digest)
        return Input(file=file, bytes=mark[2], sha256=digest)

    def still_hold(self, folder: Path) -> bool:
        """Return whether every file is unchanged since `input_of`, judged by its mark."""
        with suppress(OSError):
            return all(mark_of(folder / file) == mark for file, (mark, _) in self._now.items())
        return False

    def keep(self) -> None:
        """Write the marks and digests to disk if any changed."""
        if self._now != self._held:
            self.path.write_text(json.dumps(self._now, indent=2) + "\n")


def fingerprint(path: Path) -> tuple[int, str]:
    """Return a file's size in bytes and its SHA-256."""
    with path.open("rb") as stream:
        digest = hashlib.file_digest(stream, "sha256").hexdigest()
        return stream.tell(), digest
