"""Copy models from the MLflow registry to a folder; done by the sync process, never by a worker of the service.

MLflow is imported quietly (no telemetry, less log output, few retries), and its messages are shortened.

A model's pointer file changes only after the bundle was downloaded and verified. If the registry is down, the folder
is left unchanged.
"""

import os
import re
import shutil
import tempfile
import warnings
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final
from urllib.parse import urlsplit, urlunsplit

from features.history import History
from modelserve.bundle.bundle import CHECKSUMS, Bundle, read_bundle
from modelserve.bundle.card import MODEL_NAME
from modelserve.bundle.champions import (
    CHAMPION,
    Mark,
    Pointer,
    files_mark,
    pointer_file,
    read_pointer,
    version_folder,
    write_pointer,
)
from modelserve.errors import BundleError, MirrorError, ServeError

__all__ = ["Mirrored", "Verified", "in_short", "is_unknown", "mirror", "quietly", "read_version", "without_password"]

DIGEST_TAG: Final = "bundle_sha256"
"""Tag of a registered version that holds the digest of its bundle; downloads are checked against this digest."""

ENVIRONMENT: Final = {
    "MLFLOW_DISABLE_TELEMETRY": "true",
    "MLFLOW_ENABLE_SYSTEM_METRICS_LOGGING": "false",
    "MLFLOW_ENABLE_ARTIFACTS_PROGRESS_BAR": "false",
    "MLFLOW_SUPPRESS_PRINTING_URL_TO_STDOUT": "true",
    "MLFLOW_LOGGING_LEVEL": "ERROR",
    "MLFLOW_HTTP_REQUEST_MAX_RETRIES": "2",
    "MLFLOW_HTTP_REQUEST_BACKOFF_FACTOR": "1",
    "MLFLOW_HTTP_REQUEST_TIMEOUT": "20",
}
"""Environment variables that MLflow reads at import and at each call; values set by the user are kept."""

REASONS: Final[Mapping[str, str]] = {
    "NameResolutionError": "unknown host",
    "gaierror": "unknown host",
    "ConnectTimeoutError": "the connection timed out",
    "ReadTimeoutError": "the request timed out",
    "Read timed out": "the request timed out",
    "SSLError": "no trusted TLS connection",
    "NewConnectionError": "no connection",
    "ConnectionError": "no connection",
    "Max retries exceeded": "no response",
    "RemoteDisconnected": "the connection was closed",
    "error code 401": "credentials were refused",
    "error code 403": "credentials were refused",
}
"""Short reasons of network errors, keyed by a text that the error's message contains; the first match is used."""

UNKNOWN: Final = "RESOURCE_DOES_NOT_EXIST"
"""Error code of MLflow for an object that does not exist."""

SQLITE: Final = "sqlite:///"

BUNDLE_DEPTH: Final = 4
"""Maximum depth at which the bundle is searched among the downloaded files of a model."""

PAGE: Final = 1000
"""Maximum number of registered models that one query to the registry returns."""

Verified = dict[Path, tuple[Mark, str]]
"""Mark of the files and digest of each verified bundle, by folder; a bundle with the same mark is not read again."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Mirrored:
    """The result of copying one model.

    `outcome` is `fetched`, `present` (it was already copied), `withdrawn` (the model lost the alias, so its pointer was
    removed), or `failed` (the former pointer is kept).
    """

    name: str
    version: str
    outcome: str
    detail: str = ""


def mirror(tracking_uri: str, folder: Path, *, verified: Verified | None = None) -> list[Mirrored]:
    """Copy the champion of every registered model to `<folder>/<name>/<version>/`, and write the pointers.

    If one fails, the others are still copied, and its former version stays in place. If a registered model lost the
    alias `champion`, its pointer is removed. Models that the registry does not know are left unchanged. Bundles in
    `verified` are read again only if their files changed; the bundles copied are added to it.
    """
    known = {} if verified is None else verified
    histories: dict[str, History] = {}
    with _client(tracking_uri) as client:
        done = []
        for name, version in sorted(_champions(client)):
            if version:
                done.append(_mirror_one(client, tracking_uri, folder, (name, version), known, histories))
            elif (stale := _pointer_of(folder, name)) is not None:
                pointer_file(folder, name).unlink(missing_ok=True)
                done.append(Mirrored(name=name, version=stale.version, outcome="withdrawn"))
        return done


def read_version(tracking_uri: str, folder: Path, name: str, version: int) -> Bundle:
    """Copy one version of a model to `<folder>/<name>/<version>/` unless it is there, and read it."""
    with _client(tracking_uri) as client:
        expected = client.get_model_version(name, str(version)).tags.get(DIGEST_TAG)
        place = version_folder(folder, name, str(version))
        histories: dict[str, History] = {}
        if _present(place, expected, {}, histories) is None:
            _fetch(client, tracking_uri, place, (name, str(version), expected), histories)
        return read_bundle(place, version=str(version), histories=histories)


def _champions(client: Any) -> Iterator[tuple[str, str]]:
    """Yield the name and the champion's version of every registered model, page by page; "" without a champion."""
    token = None
    while True:
        page = client.search_registered_models(max_results=PAGE, page_token=token)
        yield from (
            (each.name, str(each.aliases.get(CHAMPION, ""))) for each in page if MODEL_NAME.fullmatch(each.name)
        )
        token = page.token
        if not token:
            return


def _mirror_one(
    client: Any, uri: str, folder: Path, wanted: tuple[str, str], verified: Verified, histories: dict[str, History]
) -> Mirrored:
    name, version = wanted
    try:
        registered = client.get_model_version(name, version)
        expected = registered.tags.get(DIGEST_TAG)
        place = version_folder(folder, name, version)
        digest, outcome = _present(place, expected, verified, histories), "present"
        if digest is None:
            digest, outcome = _fetch(client, uri, place, (name, version, expected), histories), "fetched"
            verified[place] = files_mark(place), digest
        pointer = Pointer(name=name, version=version, run_id=registered.run_id or None, digest=digest)
        if _pointer_of(folder, name) != pointer:
            write_pointer(folder, pointer)
    except (ServeError, OSError) as error:
        return Mirrored(name=name, version=version, outcome="failed", detail=str(error)[:500])
    return Mirrored(name=name, version=version, outcome=outcome)


def _present(place: Path, expected: str | None, verified: Verified, histories: dict[str, History]) -> str | None:
    """Return the digest of the bundle in a folder; None if it is missing, damaged or not the registered bundle."""
    mark = files_mark(place)
    held = verified.get(place)
    if held is None or held[0] != mark:
        try:
            held = mark, read_bundle(place, histories=histories).digest
        except BundleError:
            return None
        verified[place] = held
    return held[1] if expected in (None, held[1]) else None


def _pointer_of(folder: Path, name: str) -> Pointer | None:
    try:
        return read_pointer(folder, name)
    except BundleError:
        return None


def _fetch(
    client: Any, uri: str, place: Path, wanted: tuple[str, str, str | None], histories: dict[str, History]
) -> str:
    """Download a version's bundle to a temporary folder, verify it, move it into place, and return its digest.

    `wanted` is the model's name, its version and its registered digest, None if that is unknown.
    """
    from mlflow.artifacts import download_artifacts

    name, version, digest = wanted
    place.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=place.parent, prefix=f".{version}.") as stage:
        source = client.get_model_version_download_uri(name, version)
        try:
            whole = download_artifacts(artifact_uri=source, dst_path=str(Path(stage) / "model"), tracking_uri=uri)
        except Exception as error:
            # Artifact stores raise exceptions of many types; after any of these, the other models must still be copied.
            raise MirrorError(
                f"{name}@{version}: cannot download its files from {without_password(source)} ({type(error).__name__})"
            ) from error
        fetched = Path(whole)
        inner = _bundle_in(fetched, f"{name}@{version}")
        bundle = read_bundle(inner, histories=histories)
        if bundle.card.name != name or digest not in (None, bundle.digest):
            raise BundleError(
                f"{name}@{version}: bundle {bundle.card.name} {bundle.digest[:12]}, expected {str(digest)[:12]}"
            )
        if place.is_symlink() or place.exists():
            # The folder holds a damaged or another bundle (see `_present`), so it is replaced.
            place.rename(Path(stage) / "damaged")
        shutil.copytree(inner, Path(stage) / "whole")
        (Path(stage) / "whole").rename(place)
    return bundle.digest


def _bundle_in(model: Path, reference: str) -> Path:
    """Return the bundle's folder inside the downloaded model files."""
    found = [p.parent for p in model.rglob(CHECKSUMS) if len(p.relative_to(model).parts) <= BUNDLE_DEPTH]
    if len(found) != 1:
        raise BundleError(f"{reference}: {len(found)} bundles among the model's files, expected one; train it again")
    return found[0]


@contextmanager
def _client(uri: str) -> Iterator[Any]:  # MLflow's client, which publishes no types
    """Yield a registry client; convert every exception of MLflow into a one-line `MirrorError`."""
    shown = without_password(uri)
    with quietly():
        try:
            from mlflow import MlflowClient

            if uri.startswith(SQLITE) and not Path(uri.removeprefix(SQLITE)).exists():
                # MLflow would create an empty database, but reading a registry must not create anything.
                raise MirrorError(f"registry {shown}: no such database, expected one with tracked models")
            yield MlflowClient(tracking_uri=uri)
        except ServeError:
            raise
        except Exception as error:
            raise MirrorError(f"registry {shown}: {in_short(error)}; the cached models still serve") from error


@contextmanager
def quietly() -> Iterator[None]:
    """Suppress MLflow's output and warnings, since stdout is for data and stderr for this project's messages."""
    for name, value in ENVIRONMENT.items():
        os.environ.setdefault(name, value)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield


def in_short(error: Exception) -> str:
    r"""Return in a few words the reason why a call to MLflow failed.

    >>> in_short(OSError("HTTPConnectionPool(host='h'): Max retries exceeded (Caused by NewConnectionError('...'))"))
    'no connection'
    >>> in_short(ValueError("no such run\nsecond line"))
    'ValueError: no such run'
    """
    text = str(error).strip()
    if getattr(error, "error_code", None) != UNKNOWN and re.search(r"API request to|ConnectionPool|Max retries", text):
        return next((short for found, short in REASONS.items() if found in text), "unexpected response")
    lines = text.splitlines()
    return f"{type(error).__name__}: {lines[0][:200] if lines else 'no message'}"


def is_unknown(error: Exception) -> bool:
    """Return whether the error means that the requested object does not exist in MLflow."""
    return getattr(error, "error_code", None) == UNKNOWN


def without_password(uri: str) -> str:
    """Return an address without its user name and password.

    >>> without_password("https://me:secret@registry:5000/x"), without_password("sqlite:///a.db")
    ('https://registry:5000/x', 'sqlite:///a.db')
    """
    parts = urlsplit(uri)
    return uri if "@" not in parts.netloc else urlunsplit(parts._replace(netloc=parts.netloc.rpartition("@")[2]))
