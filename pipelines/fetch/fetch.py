"""Fetch a published trace into a folder: download, verify and unpack its files."""

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

__all__ = ["fetch"]

State = Literal["fetched", "resumed", "replaced", "present"]


@dataclass(frozen=True, slots=True, kw_only=True)
class FetchedFile:
    """One verified file of the trace; state `replaced`: it replaced an existing file with other content."""

    name: str
    size_bytes: int
    state: State
    checked: Literal["sha256", "size"]
    unpacked: tuple[Path, ...] = ()

    def row(self) -> dict[str, object]:
        """Return the file as one flat row."""
        stated = {"file": self.name, "size_bytes": self.size_bytes, "checked": self.checked, "state": self.state}
        return {**stated, "unpacked": len(self.unpacked)}


def fetch(
    name: str,
    out_dir: Path,
    *,
    manifest: Path | None = None,
    base_url: str | None = None,
    progress: Progress | None = None,
    patience: Patience | None = None,
    sleep: Callable[[float], None] = time.sleep,
) -> list[FetchedFile]:
    """Fetch a published trace into `out_dir`; a second run resumes a broken download.

    `manifest` replaces the project's own. `base_url` is a mirror (https, or http on this machine) with the same file
    names. `progress` is called with a file's name, the number of bytes received, and the file's size in bytes if known.
    """
    published = publication(name) if manifest is None else read_publication(manifest)
    patience = patience or Patience()
    try:
        out_dir.mkdir(parents=True, exist_ok=True)
    except (FileExistsError, NotADirectoryError) as error:
        raise FetchError(f"{out_dir} cannot be a folder: there is a file of that name") from error
    files = []
    for file in published.files:
        url = file.url if base_url is None else f"{base_url.rstrip('/')}/{file.name}"
        with open_client(url, patience) as client:
            state = _ensure(file, url, out_dir, client, patience, sleep, progress or (lambda *_: None))
        unpacked = _ensure_unpacked(file, out_dir)
        size_bytes = (out_dir / file.name).stat().st_size
        checked: Literal["sha256", "size"] = "sha256" if file.sha256 else "size"
        fetched = FetchedFile(name=file.name, size_bytes=size_bytes, state=state, checked=checked, unpacked=unpacked)
        files.append(fetched)
    return files


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
    final.parent.mkdir(parents=True, exist_ok=True)
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
