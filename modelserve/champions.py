"""The folder of champions: `<folder>/<name>/<version>/` holds a bundle, `<folder>/<name>/champion.json` names one.

Nothing is fetched here; a model that cannot be read is reported by its name and keeps no other from serving.
Filled by `modelserve.registry`; read by `modelserve.predictor`.
"""

import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Final

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from features.history import History
from modelserve.bundle import Bundle, read_bundle
from modelserve.card import MODEL_NAME, canonical_json
from modelserve.errors import BundleError

POINTER: Final = "champion.json"
POINTER_LIMIT_BYTES: Final = 65536

Version = Annotated[str, Field(pattern=r"^[0-9]{1,12}$")]


class Pointer(BaseModel):
    """Which version of a model serves, and what the registry said of it."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    name: str
    version: Version
    alias: str
    run_id: str | None
    digest: Annotated[str, Field(pattern=r"^[0-9a-f]{64}$")]


@dataclass(frozen=True, slots=True, kw_only=True)
class Champions:
    """The bundles that serve, by registered name, and what is wrong with those that do not."""

    bundles: Mapping[str, Bundle]
    failures: Mapping[str, str]


def version_folder(folder: Path, name: str, version: str) -> Path:
    """Return where a version's bundle lies, for names and versions that are plain folder names.

    Raises
    ------
    BundleError
        The name is not `<kind>.<trace>.<type>`, or the version no number.
    """
    if not MODEL_NAME.fullmatch(name):
        raise BundleError(
            f"model name {name[:80]!r}, expected <runtime|usage>.<trace>.<type> in letters, digits, - and _"
        )
    if not (version.isascii() and version.isdigit() and len(version) <= 12):
        raise BundleError(f"{name}: version {version[:20]!r}, expected a number")
    return folder / name / version


def write_pointer(folder: Path, pointer: Pointer) -> None:
    """Point a model's name at a version, in one step."""
    place = version_folder(folder, pointer.name, pointer.version).parent / POINTER
    with tempfile.TemporaryDirectory(dir=place.parent, prefix=f".{POINTER}.") as stage:
        staged = Path(stage) / POINTER
        staged.write_bytes(canonical_json(pointer.model_dump(mode="json")))
        staged.replace(place)


def read_pointer(folder: Path, name: str) -> Pointer | None:
    """Return which version of a model serves, or None where none was ever mirrored.

    Raises
    ------
    BundleError
        The pointer is there and is none.
    """
    place = version_folder(folder, name, "0").parent / POINTER
    try:
        with place.open("rb") as file:
            data = file.read(POINTER_LIMIT_BYTES)
    except FileNotFoundError:
        return None
    except OSError as error:
        raise BundleError(f"{name}/{POINTER}: cannot be read ({error.strerror})") from error
    try:
        pointer = Pointer.model_validate_json(data)
    except ValidationError as error:
        raise BundleError(f"{name}/{POINTER}: not a pointer, expected name, version, alias, run_id, digest") from error
    if pointer.name != name:
        raise BundleError(f"{name}/{POINTER}: names {pointer.name[:80]!r}, expected {name}")
    return pointer


def read_champion(folder: Path, name: str, *, histories: dict[str, History] | None = None) -> Bundle:
    """Read the bundle that a model's pointer names; `histories` as in `read_bundle`.

    Raises
    ------
    BundleError
        There is none, or it is not the one that was mirrored.
    """
    pointer = read_pointer(folder, name)
    if pointer is None:
        raise BundleError(f"{name}: no {POINTER} in {folder}, expected a mirrored model; promote and mirror one")
    place = version_folder(folder, name, pointer.version)
    bundle = read_bundle(place, version=pointer.version, histories=histories)
    if bundle.digest != pointer.digest or bundle.card.name != name:
        raise BundleError(
            f"{name}@{pointer.version}: bundle {bundle.card.name} {bundle.digest[:12]}, expected {pointer.digest[:12]}"
        )
    return bundle


def read_champions(folder: Path) -> Champions:
    """Read every model that the folder points at; what cannot be read is left out and reported."""
    bundles, failures = {}, {}
    histories: dict[str, History] = {}
    names = sorted(p.name for p in folder.iterdir() if MODEL_NAME.fullmatch(p.name)) if folder.is_dir() else []
    for name in names:
        try:
            if read_pointer(folder, name) is not None:
                bundles[name] = read_champion(folder, name, histories=histories)
        except BundleError as error:
            failures[name] = str(error)
    return Champions(bundles=bundles, failures=failures)
