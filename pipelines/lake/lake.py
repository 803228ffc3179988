"""The lake: its layout, its tables as polars frames, its DuckDB views; and DuckDB connections with limits."""

import hashlib
import os
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Final, Self

import duckdb

from pipelines.errors import BadUsage, LakeError, meant
from pipelines.lake import manifest as manifests
from pipelines.lake import views
from pipelines.lake.manifest import Manifest, Output, fingerprint
from pipelines.lake.storage import Folder, damaged, missing
from pipelines.lake.views import COLUMNS

if TYPE_CHECKING:
    import polars as pl

__all__ = ["Lake"]

MEMORY_MB: Final = 1000
"""Memory limit of DuckDB in MB; the memory of Python itself is not included."""
MOST_THREADS: Final = 4


class Lake:
    """A folder of canonical tables; as a context manager, it closes its DuckDB connections."""

    def __init__(self, path: str | Path) -> None:
        self.path = Path(path).absolute()
        self.storage = Folder(self.path)
        self._open: list[duckdb.DuckDBPyConnection] = []
        self._seen = False

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Close every DuckDB connection that this object opened."""
        while self._open:
            self._open.pop().close()

    def traces(self) -> list[str]:
        """Return the names of the traces in the lake, sorted."""
        return sorted(self.storage.manifests())

    def chosen(self, trace: str | None) -> str:
        """Return the named trace; without a name, the only trace."""
        if trace is not None:
            return self.manifest(trace).trace
        self._require()
        held = self.traces()
        if len(held) > 1:
            raise BadUsage(f"{self.path} holds {', '.join(held)}: choose one with --trace, in Python with trace=")
        return held[0]

    def manifest(self, trace: str) -> Manifest:
        """Return the manifest of a trace."""
        text = self.storage.manifests().get(trace)
        if text is None:
            held = self.traces()
            raise LakeError(
                f"no trace {trace!r} in {self.path} (it holds: {', '.join(held) or 'none'}){meant(trace, held)}; "
                "ingest it with `taut ingest`"
            )
        return manifests.from_json(text, trace)

    def readable_manifests(self) -> dict[str, Manifest]:
        """Return the manifests by trace, without those that are damaged or of another format."""
        readable = {}
        for trace in self.traces():
            with suppress(LakeError):
                readable[trace] = self.manifest(trace)
        return readable

    def table(self, name: str, trace: str | None = None, cluster: str | None = None) -> "pl.LazyFrame":
        """Return a canonical table (or `quarantine`); `trace` and `cluster` select rows, None selects all.

        The frame is empty if no selected trace has rows.
        """
        # Imported here because ingest and SQL queries do not need polars; importing it takes time and memory.
        import polars as pl

        from features.frames import frame_schema

        if name not in COLUMNS:
            raise LakeError(f"no table {name!r}; the lake has {', '.join(COLUMNS)}")
        schema = frame_schema(COLUMNS[name])
        files = self.storage.whole(self._outputs(name, trace, cluster))
        if not files:
            return pl.LazyFrame(schema=schema)
        frame = pl.scan_parquet(files, hive_partitioning=False, glob=False)
        return frame.select(pl.col(n).cast(t) for n, t in schema.items())

    def connect(
        self, spill: Path | None = None, memory_mb: int | None = None, *, refresh: bool = True
    ) -> duckdb.DuckDBPyConnection:
        """Return a connection with the lake's views that can read only the lake's files and write only to `spill`.

        The database is in memory. With `refresh`, the first call also rebuilds the DuckDB file with the views if it is
        outdated, and can be written.
        """
        self._require()
        if refresh and not self._seen:
            if not self._views_are_fresh():
                with suppress(LakeError, OSError, duckdb.Error), self.storage.rebuilding():
                    self.refresh_views()
            self._seen = True
        connection = configured(None, spill=spill, memory_mb=memory_mb)
        self._open.append(connection)
        self._create_views(connection)
        files = [str(f) for name in COLUMNS for f in self._files(name)]
        connection.execute(f"SET allowed_paths = {sql_list(files)}")
        seal(connection)
        return connection

    def place(self, staged: Path, table: str, trace: str, cluster: str, rows: int) -> Output:
        """Move a table file from staging to its final name, derived from its content; return its manifest entry."""
        size, digest = fingerprint(staged)
        path = f"{table}/trace={trace}/cluster={cluster}/{digest[:16]}.parquet"
        self.storage.place(staged, path)
        return Output(table=table, cluster=cluster, path=path, rows=rows, bytes=size)

    def commit(self, manifest: Manifest) -> None:
        """Replace the trace's manifest, rebuild the views and sweep."""
        if not self.storage.intact(manifest.outputs):
            vanished = f"files of {manifest.trace} in {self.path} vanished before the commit"
            raise LakeError(f"{vanished}; run the command again")
        self.storage.commit(manifest.trace, manifest.to_json())
        self.refresh_views()
        self.sweep()

    def sweep(self) -> None:
        """Delete files that no manifest names: of interrupted ingests, and tables that a later ingest replaced."""
        readable = self.readable_manifests()
        named = {output.path for manifest in readable.values() for output in manifest.outputs}
        self.storage.sweep(named, [each for each in self.traces() if each not in readable])

    def refresh_views(self) -> None:
        """Rebuild the DuckDB file with the views unless it is up to date; the caller must hold the lock for writing."""
        if self._views_are_fresh():
            return
        fresh = self.views_file.with_suffix(".fresh")
        fresh.unlink(missing_ok=True)
        connection = configured(fresh)
        connection.begin()  # otherwise each of a hundred statements waits for the disk
        self._create_views(connection)
        for comment in views.comments():
            connection.execute(comment)
        connection.execute(f"CREATE TABLE {views.STATE_TABLE} AS SELECT ? AS state", [self._state()])
        connection.execute(views.STATE_COMMENT)
        connection.commit()
        connection.close()
        fresh.replace(self.views_file)

    @property
    def manifest_folder(self) -> Path:
        """Return the folder of the manifests and of the marks of ingested files."""
        return self.path / "manifests"

    @property
    def views_file(self) -> Path:
        """Return the path of the DuckDB file with the views."""
        return self.path / "taut.duckdb"

    def _files(self, name: str) -> list[Path]:
        return [self.path / output.path for output in self._outputs(name)]

    def _outputs(self, name: str, trace: str | None = None, cluster: str | None = None) -> list[Output]:
        held = [self.manifest(t) for t in ([trace] if trace else self.traces())]
        clusters = {a.cluster for m in held for a in m.accounts}
        if cluster is not None and cluster not in clusters:
            raise LakeError(
                f"no cluster {cluster!r} in {trace or 'the lake'}; it has {', '.join(sorted(clusters)) or 'none'}"
            )
        outputs = (o for m in held for o in m.outputs)
        return [o for o in outputs if o.table == name and cluster in (None, o.cluster)]

    def _create_views(self, connection: duckdb.DuckDBPyConnection) -> None:
        for name, kinds in COLUMNS.items():
            columns = ", ".join(f'CAST(NULL AS {kind}) AS "{column}"' for column, kind in kinds.items())
            files = [str(f) for f in self._files(name)]
            rows = f"FROM read_parquet({sql_list(files)}, hive_partitioning = false)"
            try:
                connection.execute(f"CREATE VIEW {name} AS {rows if files else f'SELECT {columns} WHERE false'}")
            except duckdb.Error as error:
                raise unreadable(connection, files, error) from error
        for creation in views.creations(self._zones()):
            connection.execute(creation)

    def _zones(self) -> dict[str, str]:
        return {trace: self.manifest(trace).zone for trace in self.traces()}

    def _state(self) -> str:
        digest = hashlib.sha256(str(self.path).encode())
        for statement in (*views.creations(self._zones()), *views.comments()):
            digest.update(statement.encode())
        for text in self.storage.manifests().values():
            digest.update(text.encode())
        return digest.hexdigest()

    def _views_are_fresh(self) -> bool:
        if not self.views_file.is_file():
            return False
        with suppress(duckdb.Error), configured(self.views_file, read_only=True) as connection:
            return connection.execute(f"SELECT state FROM {views.STATE_TABLE}").fetchall() == [(self._state(),)]
        return False

    def _require(self) -> None:
        if not self.traces():
            raise LakeError(f"no lake at {self.path}; make one with `taut ingest`")


def configured(
    path: Path | None,
    *,
    read_only: bool = False,
    spill: Path | None = None,
    memory_mb: int | None = None,
    threads: int | None = None,
) -> duckdb.DuckDBPyConnection:
    """Connect to a DuckDB file, or to a database in memory if `path` is None; set its time zone to UTC."""
    config: dict[str, str | bool | int | float | list[str]] = {
        "memory_limit": f"{memory_mb or MEMORY_MB}MB",
        "threads": min(MOST_THREADS, threads or os.cpu_count() or 1),
        "autoinstall_known_extensions": False,
        "autoload_known_extensions": False,
    }
    if spill is not None:
        config["temp_directory"] = str(spill / "spill")
    connection = duckdb.connect(str(path or ":memory:"), read_only=read_only, config=config)
    connection.execute("SET TimeZone = 'UTC'")
    connection.execute("SET enable_progress_bar = false")  # DuckDB would print it on stdout, among the rows
    return connection


def seal(connection: duckdb.DuckDBPyConnection) -> None:
    """Deny the connection access to all files except those already allowed; this cannot be undone."""
    for setting in ("python_enable_replacements", "allow_community_extensions", "enable_external_access"):
        connection.execute(f"SET {setting} = false")
    connection.execute("SET lock_configuration = true")


def sql_list(values: Iterable[str]) -> str:
    """Return the SQL of a list of texts."""
    return "[" + ", ".join("'" + v.replace("'", "''") + "'" for v in values) + "]"


def unreadable(connection: duckdb.DuckDBPyConnection, files: list[str], error: duckdb.Error) -> LakeError:
    """Return an error that names the first of `files` that cannot be read."""
    for file in files:
        if not Path(file).is_file():
            return missing(Path(file))
        try:
            connection.execute(f"FROM read_parquet({sql_list([file])}) LIMIT 0")
        except duckdb.Error as fault:
            return damaged(Path(file), str(fault).partition("\n")[0].replace(file, "the file")[:200])
    reason = str(error).partition("\n")[0][:200]
    return LakeError(f"the lake's files cannot be read together ({reason}); expected one schema. Ingest them again.")
