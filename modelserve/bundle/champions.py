"""The local folder of models: bundles in `<name>/<version>/`, and pointer files `<name>/champion.json`.

A pointer file names the version that serves. A model that cannot be read is reported and does not affect the others.
"""

import os
import stat
import tempfile
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Final, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from features.history import History
from modelserve.bundle.bundle import Bundle, opened_plainly, read_bundle
from modelserve.bundle.card import MODEL_NAME, canonical_json
from modelserve.errors import BundleError

__all__ = [
    "CHAMPION",
    "Champions",
    "Mark",
    "Pointer",
    "files_mark",
    "model_marks",
    "model_names",
    "read_champions",
    "read_pointed",
    "read_pointer",
    "version_folder",
]

CHAMPION: Final = "champion"

POINTER_LIMIT_BYTES: Final = 65536

Version = Annotated[str, Field(pattern=r"^[0-9]{1,12}$")]


class Pointer(BaseModel):
    """The content of a pointer file: the champion's version, and its run id and digest in the registry."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    name: str
    version: Version
    alias: Literal["champion"] = "champion"
    run_id: str | None
    digest: Annotated[str, Field(pattern=r"^[0-9a-f]{64}$")]


@dataclass(frozen=True, slots=True, kw_only=True)
class Champions:
    """The bundles of the readable champions, and the errors of the unreadable ones, by registered name."""

    bundles: Mapping[str, Bundle]
    failures: Mapping[str, str]


def version_folder(folder: Path, name: str, version: str) -> Path:
    """Return the folder of a version's bundle, after checking that name and version are safe in a path."""
    if not MODEL_NAME.fullmatch(name):
        raise BundleError(
            f"model name {name[:80]!r}, expected <runtime|usage>.<trace>.<type> in letters, digits, - and _"
        )
    if not (version.isascii() and version.isdigit() and len(version) <= 12):
        raise BundleError(f"{name}: version {version[:20]!r}, expected a number")
    return folder / name / version


def pointer_file(folder: Path, name: str) -> Path:
    """Return the path of a model's pointer file."""
    return version_folder(folder, name, "0").parent / f"{CHAMPION}.json"


def model_names(folder: Path) -> list[str]:
    """Return the sorted names of the models in a folder; empty if the folder does not exist."""
    if not folder.is_dir():
        return []
    with os.scandir(folder) as entries:
        return sorted(each.name for each in entries if MODEL_NAME.fullmatch(each.name))


def write_pointer(folder: Path, pointer: Pointer) -> None:
    """Write a pointer file atomically."""
    place = pointer_file(folder, pointer.name)
    with tempfile.TemporaryDirectory(dir=place.parent, prefix=f".{place.name}.") as stage:
        staged = Path(stage) / place.name
        staged.write_bytes(canonical_json(pointer.model_dump(mode="json")))
        staged.replace(place)


def read_pointer(folder: Path, name: str) -> Pointer | None:
    """Return the pointer of a model, or None if there is no pointer file."""
    place = pointer_file(folder, name)
    where = f"{name}/{place.name}"
    try:
        with open(place, "rb", opener=opened_plainly) as file:  # Path.open takes no opener
            if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
                raise BundleError(f"{where}: not a regular file, expected a pointer; mirror it again")
            data = file.read(POINTER_LIMIT_BYTES)
    except FileNotFoundError:
        return None
    except OSError as error:
        raise BundleError(f"{where}: cannot be read ({error.strerror})") from error
    try:
        pointer = Pointer.model_validate_json(data)
    except ValidationError as error:
        raise BundleError(f"{where}: not a pointer, expected name, version, alias, run_id, digest") from error
    if pointer.name != name:
        raise BundleError(f"{where}: names {pointer.name[:80]!r}, expected {name}")
    return pointer


def read_pointed(folder: Path, pointer: Pointer, *, histories: dict[str, History] | None = None) -> Bundle:
    """Read the bundle of the version that a pointer names; `histories` is as in `read_bundle`."""
    place = version_folder(folder, pointer.name, pointer.version)
    for each in (place, place.parent):
        if each.is_symlink():
            raise BundleError(f"{pointer.name}@{pointer.version}: {each.name} is a link, expected a folder")
    bundle = read_bundle(place, version=pointer.version, histories=histories)
    if bundle.digest != pointer.digest or bundle.card.name != pointer.name:
        raise BundleError(
            f"{pointer.name}@{pointer.version}: bundle {bundle.card.name} {bundle.digest[:12]}, "
            f"expected {pointer.digest[:12]}; mirror it again"
        )
    return bundle


def read_champion(folder: Path, name: str, *, histories: dict[str, History] | None = None) -> Bundle:
    """Read the bundle of a model's champion; `histories` is as in `read_bundle`."""
    pointer = read_pointer(folder, name)
    if pointer is None:
        raise BundleError(f"{name}: no {CHAMPION}.json in {folder}, expected a mirrored model; promote and mirror one")
    return read_pointed(folder, pointer, histories=histories)


def read_champions(folder: Path) -> Champions:
    """Read the champion of every model; report the champions that cannot be read."""
    bundles, failures = {}, {}
    histories: dict[str, History] = {}
    for name in model_names(folder):
        try:
            if read_pointer(folder, name) is not None:
                bundles[name] = read_champion(folder, name, histories=histories)
        except BundleError as error:
            failures[name] = str(error)
    return Champions(bundles=bundles, failures=failures)


Mark = tuple[int, ...]
"""Times, size and inode of each file, to detect changed files without reading them."""


def model_marks(folder: Path) -> dict[str, Mark] | None:
    """Return the mark of every model's files by name; None if the folder cannot be listed."""
    try:
        with os.scandir(folder) as entries:
            return {
                each.name: files_mark(Path(each))
                for each in entries
                if MODEL_NAME.fullmatch(each.name) and each.is_dir()
            }
    except OSError:
        return None


def files_mark(folder: Path) -> Mark:
    """Return the mark of all files in a folder and its subfolders."""
    marks: list[int] = []
    for place, folders, files in os.walk(folder):
        folders.sort()
        for each in sorted(files):
            with suppress(OSError):
                stat_ = os.lstat(f"{place}/{each}")
                marks += stat_.st_mtime_ns, stat_.st_ctime_ns, stat_.st_size, stat_.st_ino
    return tuple(marks)
