"""The registry mirrored to a folder: the one file that reads MLflow, run by a sync process and never by a worker.

An alias is resolved, its bundle fetched and verified, and only then does the pointer move; a registry that is away
leaves the folder as it is. Called by `pipelines.cli`; what it writes is `modelserve.champions`' to read.
"""

import shutil
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from modelserve.bundle import CHECKSUMS, Bundle, read_bundle
from modelserve.card import MODEL_NAME
from modelserve.champions import POINTER, Pointer, read_pointer, version_folder, write_pointer
from modelserve.errors import BundleError, MirrorError, ServeError
from modelserve.quiet import quietly

CHAMPION: Final = "champion"
DIGEST_TAG: Final = "bundle_sha256"
"""The tag of a version that names the bundle's digest, so that what arrives is what was registered."""

SQLITE: Final = "sqlite:///"

BUNDLE_DEPTH: Final = 4
"""How deep below the model's files the bundle is looked for."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Mirrored:
    """What became of one model.

    `outcome`: `fetched`, `present` (already there), `withdrawn` (it lost the alias), `failed` (the old pointer stands).
    """

    name: str
    version: str
    alias: str
    outcome: str
    detail: str = ""


def mirror(
    tracking_uri: str, folder: Path, *, names: Sequence[str] | None = None, alias: str = CHAMPION
) -> list[Mirrored]:
    """Bring every model that has the alias (or those named) to `<folder>/<name>/<version>/`, and point at it.

    One model that fails keeps none of the others, and not its former version, from serving. A model that the registry
    knows but that lost the alias is withdrawn; one that the registry does not know is left alone.

    Raises
    ------
    MirrorError
        The registry is away, or a model named has no such alias.
    """
    with _client(tracking_uri) as client:
        done = []
        for name, version in _aliased(client, names, alias):
            if version is not None:
                done.append(_mirror_one(client, tracking_uri, folder, name, version, alias))
            elif (stale := _pointer_of(folder, name)) is not None and stale.alias == alias:
                (folder / name / POINTER).unlink()
                done.append(Mirrored(name=name, version=stale.version, alias=alias, outcome="withdrawn"))
        return done


def _aliased(client: Any, names: Sequence[str] | None, alias: str) -> list[tuple[str, str | None]]:
    """Return the name of every model that is ours (or those named), and the version that has the alias, if any."""
    if names is None:
        registered = client.search_registered_models(max_results=1000)
        held = [(each.name, each.aliases.get(alias)) for each in registered if MODEL_NAME.fullmatch(each.name)]
        return sorted((name, None if version is None else str(version)) for name, version in held)
    chosen: list[tuple[str, str | None]] = []
    for name in names:
        if not MODEL_NAME.fullmatch(name):
            raise MirrorError(f"model name {name[:80]!r}, expected <runtime|usage>.<trace>.<type>")
        version = client.get_registered_model(name).aliases.get(alias)
        if version is None:
            raise MirrorError(f"{name}: no alias {alias!r}, expected a promoted version; promote one first")
        chosen.append((name, str(version)))
    return chosen


def _mirror_one(client: Any, uri: str, folder: Path, name: str, version: str, alias: str) -> Mirrored:
    try:
        registered = client.get_model_version(name, version)
        place = version_folder(folder, name, version)
        bundle = _present(place, registered.tags.get(DIGEST_TAG))
        outcome = "present"
        if bundle is None:
            bundle = _fetch(client, uri, place, name, version, registered.tags.get(DIGEST_TAG))
            outcome = "fetched"
        pointer = Pointer(
            name=name, version=version, alias=alias, run_id=registered.run_id or None, digest=bundle.digest
        )
        if _pointer_of(folder, name) != pointer:
            write_pointer(folder, pointer)
    except (ServeError, OSError) as error:
        return Mirrored(name=name, version=version, alias=alias, outcome="failed", detail=str(error)[:500])
    return Mirrored(name=name, version=version, alias=alias, outcome=outcome)


def _present(place: Path, digest: str | None) -> Bundle | None:
    """Return the bundle already mirrored, if it is whole and the one registered."""
    try:
        bundle = read_bundle(place)
    except BundleError:
        return None
    return bundle if digest in (None, bundle.digest) else None


def _pointer_of(folder: Path, name: str) -> Pointer | None:
    try:
        return read_pointer(folder, name)
    except BundleError:
        return None


def _fetch(client: Any, uri: str, place: Path, name: str, version: str, digest: str | None) -> Bundle:
    """Download a version's bundle beside its place, verify it, and move it there."""
    from mlflow.artifacts import download_artifacts

    place.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=place.parent, prefix=f".{version}.") as stage:
        source = client.get_model_version_download_uri(name, version)
        try:
            whole = download_artifacts(artifact_uri=source, dst_path=str(Path(stage) / "model"), tracking_uri=uri)
        except Exception as error:
            # Whatever a store raises, the other models are brought all the same.
            raise MirrorError(
                f"{name}@{version}: its files cannot be had from {source} ({type(error).__name__})"
            ) from error
        fetched = Path(whole)
        inner = _bundle_in(fetched, f"{name}@{version}")
        bundle = read_bundle(inner)
        if bundle.card.name != name or digest not in (None, bundle.digest):
            raise BundleError(
                f"{name}@{version}: bundle {bundle.card.name} {bundle.digest[:12]}, expected {str(digest)[:12]}"
            )
        if place.is_symlink() or place.exists():
            # It was read above and found damaged.
            place.rename(Path(stage) / "damaged")
        shutil.copytree(inner, Path(stage) / "whole")
        (Path(stage) / "whole").rename(place)
    return read_bundle(place)


def _bundle_in(model: Path, reference: str) -> Path:
    """Return the folder of the bundle among a model's files."""
    found = [p.parent for p in model.rglob(CHECKSUMS) if len(p.relative_to(model).parts) <= BUNDLE_DEPTH]
    if len(found) != 1:
        raise BundleError(f"{reference}: {len(found)} bundles among the model's files, expected one; train it again")
    return found[0]


@contextmanager
def _client(uri: str) -> Iterator[Any]:  # MLflow's client, which publishes no types
    """Give a client of the registry; whatever MLflow raises comes out as one `MirrorError`."""
    with quietly():
        try:
            from mlflow import MlflowClient

            if uri.startswith(SQLITE) and not Path(uri.removeprefix(SQLITE)).exists():
                # MLflow would make an empty database here, which is no answer to a question.
                raise MirrorError(f"registry {uri}: no such database, expected one that models were tracked in")
            yield MlflowClient(tracking_uri=uri)
        except ServeError:
            raise
        except Exception as error:
            said = str(error).strip().splitlines()
            raise MirrorError(
                f"registry {uri}: {type(error).__name__}: {said[0][:300] if said else 'no word'}; "
                "what was mirrored before still serves"
            ) from error
