"""`taut fetch`: a published trace into a folder: downloaded, verified, unpacked where it has to be.

The transfer is `pipelines.fetch.download`, the unpacking `pipelines.fetch.archives`, what to get
`data/manifests/*.toml`. Called by `pipelines.cli`.
"""

import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import httpx2

from pipelines.errors import FetchError
from pipelines.fetch.archives import are_unpacked, unpack
from pipelines.fetch.download import Patience, Progress, download, mismatch, open_client
from pipelines.fetch.publication import PublishedFile, publication, read_publication

State = Literal["fetched", "resumed", "replaced", "present"]


@dataclass(frozen=True, slots=True, kw_only=True)
class FetchedFile:
    """One file of the trace in the folder, verified; `replaced` stood there before with other content."""

    name: str
    size_bytes: int
    state: State
    unpacked: tuple[Path, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class FetchReport:
    """What is in the folder now, whose it is, and under which terms."""

    trace: str
    title: str
    publisher: str
    licence: str
    citation: str
    folder: Path
    files: tuple[FetchedFile, ...]

    def rows(self) -> list[dict[str, object]]:
        """Return one flat row per file."""
        return [
            {"file": file.name, "size_bytes": file.size_bytes, "state": file.state, "unpacked": len(file.unpacked)}
            for file in self.files
        ]


def fetch(
    name: str,
    out_dir: Path,
    *,
    manifest: Path | None = None,
    base_url: str | None = None,
    progress: Progress | None = None,
    patience: Patience | None = None,
    sleep: Callable[[float], None] = time.sleep,
) -> FetchReport:
    """Fetch a published trace into `out_dir`; run again after a break, it goes on where it stopped.

    Files that are there and verified are left alone, so a second run downloads nothing.

    Parameters
    ----------
    name
        One of `pipelines.fetch.publication.published_names()`; only a label when `manifest` is given.
    manifest
        A manifest to go by instead of the project's own.
    base_url
        A mirror: files are asked for at `<base_url>/<file name>` instead of the publishers' addresses. https, or plain
        http on this machine.
    progress
        Called with a file's name, the bytes held, and the bytes in all where known.
    sleep
        Waits between attempts.

    Raises
    ------
    BadUsage
        When no published trace has that name.
    FetchError
        When a file cannot be had, is not what the manifest says, or cannot be unpacked safely. Files verified before
        stay; nothing half-written has a final name.
    """
    published = publication(name) if manifest is None else read_publication(manifest)
    patience = patience or Patience()
    _make_folder(out_dir)
    files = []
    for file in published.files:
        url = file.url if base_url is None else f"{base_url.rstrip('/')}/{file.name}"
        with open_client(url, patience) as client:
            state = _ensure(file, url, out_dir, client, patience, sleep, progress or _silent)
        unpacked = _ensure_unpacked(file, out_dir)
        size_bytes = (out_dir / file.name).stat().st_size
        files.append(FetchedFile(name=file.name, size_bytes=size_bytes, state=state, unpacked=unpacked))
    return FetchReport(
        trace=published.name,
        title=published.title,
        publisher=published.publisher,
        licence=published.licence,
        citation=published.citation,
        folder=out_dir,
        files=tuple(files),
    )


def _ensure(
    file: PublishedFile,
    url: str,
    out_dir: Path,
    client: httpx2.Client,
    patience: Patience,
    sleep: Callable[[float], None],
    progress: Progress,
) -> State:
    final = out_dir / file.name
    was_there = final.exists()
    if was_there and mismatch(final, size_bytes=file.size_bytes, sha256=file.sha256) is None:
        return "present"
    state = download(file, url, out_dir, client=client, patience=patience, sleep=sleep, progress=progress)
    return "replaced" if was_there else state


def _ensure_unpacked(file: PublishedFile, out_dir: Path) -> tuple[Path, ...]:
    if file.unpack is None:
        return ()
    target = out_dir / file.unpack.into if file.unpack.into else out_dir
    if are_unpacked(target, file.unpack.members):
        return tuple(target / member.path for member in file.unpack.members)
    return tuple(unpack(out_dir / file.name, target, file.unpack.members, max_bytes=file.unpack.max_bytes))


def _make_folder(out_dir: Path) -> None:
    try:
        out_dir.mkdir(parents=True, exist_ok=True)
    except (FileExistsError, NotADirectoryError) as error:
        raise FetchError(f"{out_dir} cannot be a folder: a file stands in its way") from error


def _silent(name: str, held_bytes: int, total_bytes: int | None) -> None:
    """Report nothing."""
