"""Open a user's data with a mapping: convert a folder, a file or a PostgreSQL address to a source to ingest."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final

from pipelines.errors import MappingError, SourceError
from pipelines.lake.generic.declaration import source_of, wanted_of
from pipelines.lake.generic.mapping import GenericMapping, RowsMapping, read_mapping
from pipelines.lake.generic.records import postgres_records, written_records
from pipelines.lake.sources.source import CLUSTER, Source

__all__ = ["opened_source"]

SCHEMES: Final = ("postgresql://", "postgres://")


@dataclass(frozen=True, slots=True, kw_only=True)
class OpenedSource:
    """A source and the folder with its files."""

    source: Source
    folder: Path


@contextmanager
def opened_source(mapping_file: Path, place: str) -> Iterator[OpenedSource]:
    """Open the folder, file or PostgreSQL database at `place`; rows of the latter go to a temporary folder."""
    mapping = read_mapping(mapping_file)
    tables = {"jobs": mapping.jobs} | ({"machines": mapping.machines} if mapping.machines else {})
    if place.startswith(SCHEMES):
        with TemporaryDirectory(prefix="taut-rows-") as scratch:
            yield OpenedSource(source=_fetched(mapping, tables, place, Path(scratch)), folder=Path(scratch))
        return
    remote = [name for name, rows in tables.items() if rows.format == "postgres"]
    if remote:
        raise MappingError(f"[{remote[0]}] is of format postgres; expected --from postgresql://USER@HOST/DATABASE")
    path = Path(place)
    if not path.exists():
        raise SourceError(f"nothing at {place}; expected the folder of the mapping's files, or its one file")
    folder = path if path.is_dir() else path.absolute().parent
    files = {name: _file_of(name, rows, path) for name, rows in tables.items()}
    yield OpenedSource(source=source_of(mapping, files), folder=folder)


def _file_of(table: str, rows: RowsMapping, path: Path) -> str:
    """Return a table's file, relative to the input folder; if `path` is a file, it is the file of the jobs."""
    if rows.file is not None and CLUSTER in rows.file and not path.is_dir():
        raise MappingError(f"[{table}] takes the cluster from the file's name {rows.file!r}; expected --from FOLDER")
    if table == "jobs" and not path.is_dir():
        return path.name
    if rows.file is None:
        raise MappingError(f"[{table}] names no file; expected file = '...', a path below the folder given with --from")
    return rows.file


def _fetched(mapping: GenericMapping, tables: dict[str, RowsMapping], address: str, scratch: Path) -> Source:
    files = {}
    for name, rows in tables.items():
        if rows.format != "postgres":
            raise MappingError(f"[{name}] is of format {rows.format}; expected postgres with that --from")
        usage = mapping.usage.columns if mapping.usage and name == "jobs" else {}
        wanted = wanted_of({**rows.columns, **usage})
        files[name] = f"query of {name}"
        written_records(postgres_records(address, rows, wanted), len(wanted), scratch / files[name], files[name])
    return source_of(mapping, files)
