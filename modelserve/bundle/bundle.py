"""The bundle: a folder with one model and everything it needs to predict; how it is read, verified and written.

Only the files listed here are opened, and nothing is unpickled.
"""

import hashlib
import io
import os
import re
import shutil
import stat
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Final

import polars as pl
from pydantic import TypeAdapter, ValidationError

from features.contract import FeatureContract
from features.errors import FeatureError
from features.history import JOB_COLUMNS, USE_COLUMNS, History
from modelserve.bundle.boosters import QuantileForest, load_booster, read_quantile_forest
from modelserve.bundle.card import (
    IMPORTANCES,
    RESPONSE,
    RUNTIME_TARGET,
    USAGE_TARGETS,
    Card,
    Importance,
    canonical_json,
    complaint,
)
from modelserve.bundle.trees.forest import Forest
from modelserve.errors import BundleError

if TYPE_CHECKING:
    from xgboost import Booster

__all__ = ["Bundle", "known_until", "read_bundle", "write_bundle"]

CARD: Final = "card.json"
CONTRACT: Final = "contract.json"
HISTORY: Final = "history.parquet"
IMPORTANCE: Final = "importances.json"
FOREST: Final = "forest"
"""Name of the two files of the quantile forest in the folder of models: `forest.ubj` and `forest.f32`."""
CHECKSUMS: Final = "checksums.json"
MODELS: Final = "models"

MIB: Final = 1 << 20
SIZE_LIMITS: Final[dict[str, int]] = {
    CARD: 1 * MIB,
    CONTRACT: 16 * MIB,
    HISTORY: 512 * MIB,
    IMPORTANCE: 1 * MIB,
    CHECKSUMS: 1 * MIB,
    **{f"{MODELS}/{target}.ubj": 256 * MIB for target in (RUNTIME_TARGET, *USAGE_TARGETS, FOREST, RESPONSE)},
    f"{MODELS}/{FOREST}.f32": 64 * MIB,
}
"""Maximum size in bytes of each file that a bundle may contain."""

HISTORY_ROWS_LIMIT: Final = 5_000_000
RESOURCES_OF_RESPONSE: Final = 5
"""Number of inputs of a response model."""

_NO_HISTORY: Final = (
    FeatureError,
    pl.exceptions.PolarsError,
    pl.exceptions.PanicException,  # raised by Polars for some damaged files; not a subclass of `Exception`
    ValueError,
    TypeError,
    OverflowError,
)
_CHECKSUMS: Final = TypeAdapter(dict[str, str])
_SHA256: Final = re.compile(r"[0-9a-f]{64}")


@dataclass(frozen=True, slots=True, kw_only=True)
class Bundle:
    """One verified model in memory: its card, feature encoding, boosters and history.

    `boosters` and `forests` (their checked trees) are keyed by target, or by `RESPONSE`. `known_until` is the end of
    the history; the trees end at the training cut of the card. `digest` is the SHA-256 of `checksums.json`, which lists
    the SHA-256 of every other file, so it identifies the whole bundle. `history_digest` is the SHA-256 of the history
    file. `version` is the registered version, None if unknown. `quantile_forest` is None unless it is a member of the
    model's combination.
    """

    card: Card
    contract: FeatureContract
    boosters: Mapping[str, "Booster"]
    forests: Mapping[str, Forest]
    history: History
    known_until: datetime
    importances: tuple[Importance, ...]
    path: Path
    digest: str
    history_digest: str
    version: str | None = None
    quantile_forest: QuantileForest | None = None

    @property
    def reference(self) -> str:
        """The name and version of the model, such as `runtime.pai.ctr@7`; without `@7` if the version is unknown."""
        return self.card.name if self.version is None else f"{self.card.name}@{self.version}"


def known_until(history: History, cut: datetime) -> datetime:
    """Return the end of a history, just after its latest event (features count only earlier events); at least `cut`."""
    latest = history.frame.select(pl.max_horizontal(pl.col("submit_ts", "end_ts").max())).item()
    return cut if latest is None else max(cut, latest + timedelta(microseconds=1))


def read_bundle(folder: Path, *, version: str | None = None, histories: dict[str, History] | None = None) -> Bundle:
    """Read a bundle, and check its files, their sizes, checksums and format, and that their contents match each other.

    Checksums detect damaged files and files of another bundle. They do not stop an attacker who may write to the
    folder. `histories` is a cache of job histories by the SHA-256 of their file, because models of one trace share a
    history; the history of this bundle is added to it.
    """
    contents = _verified(folder)
    try:
        card = Card.model_validate_json(contents[CARD])
        importances = IMPORTANCES.validate_json(contents[IMPORTANCE])
    except ValidationError as error:
        raise BundleError(f"{folder.name}: {complaint(error)}") from error
    models = {Path(name).name for name in contents if name.startswith(f"{MODELS}/")}
    forest = {f"{FOREST}.ubj", f"{FOREST}.f32"} if card.has_forest else set()
    expected = {f"{target}.ubj" for target in card.boosters} | forest
    if models != expected:
        raise BundleError(f"{folder.name}: models {sorted(models)}, expected {sorted(expected)} ({CARD})")
    contract = _read_contract(folder, contents[CONTRACT], card)
    quantile_forest: QuantileForest | None = None
    if forest:
        trees, values = (contents[f"{MODELS}/{FOREST}.{kind}"] for kind in ("ubj", "f32"))
        where = f"{folder.name}/{MODELS}/{FOREST}"
        quantile_forest = read_quantile_forest(trees, values, features=len(contract.names), name=where)
    outputs = len(card.quantiles) if card.kind == "runtime" else 1
    boosters, forests = {}, {}
    for target in card.boosters:
        name = f"{MODELS}/{target}.ubj"
        shape = (RESOURCES_OF_RESPONSE, 1) if target == RESPONSE else (len(contract.names), outputs)
        boosters[target], forests[target] = load_booster(
            contents[name], features=shape[0], outputs=shape[1], name=f"{folder.name}/{name}"
        )
    history = _read_history(folder, contents[HISTORY], card, {} if histories is None else histories)
    return Bundle(
        card=card,
        contract=contract,
        quantile_forest=quantile_forest,
        boosters=boosters,
        forests=forests,
        history=history,
        known_until=known_until(history, card.until),
        importances=importances,
        path=folder,
        digest=_sha256(contents[CHECKSUMS]),
        history_digest=_sha256(contents[HISTORY]),
        version=version,
    )


def _read_contract(folder: Path, data: bytes, card: Card) -> FeatureContract:
    try:
        contract = FeatureContract.from_json(data.decode())
    except (FeatureError, ValueError, TypeError, KeyError, AttributeError, RecursionError) as error:
        raise BundleError(f"{folder.name}/{CONTRACT}: {str(error)[:300]}, expected a contract's JSON") from error
    if contract.fingerprint != card.contract_fingerprint:
        raise BundleError(
            f"{folder.name}/{CONTRACT}: fingerprint {contract.fingerprint[:12]}, "
            f"expected {card.contract_fingerprint[:12]} ({CARD})"
        )
    return contract


def _read_history(folder: Path, data: bytes, card: Card, histories: dict[str, History]) -> History:
    digest = _sha256(data)
    try:
        if digest not in histories:
            rows = int(pl.scan_parquet(io.BytesIO(data)).select(pl.len()).collect().item())
            if rows > HISTORY_ROWS_LIMIT:  # a small file can unpack to very many rows
                raise ValueError(f"{rows} rows, expected at most {HISTORY_ROWS_LIMIT}")
            columns = [*JOB_COLUMNS, *USE_COLUMNS, "measured"]
            histories[digest] = History.from_tail(pl.read_parquet(io.BytesIO(data), columns=columns))
        history = histories[digest]
    except _NO_HISTORY as error:
        raise BundleError(f"{folder.name}/{HISTORY}: {str(error)[:300]}, expected a job history") from error
    if history.trace not in (None, card.trace):
        raise BundleError(f"{folder.name}/{HISTORY}: jobs of {history.trace!r}, expected {card.trace!r} ({CARD})")
    return history


def _verified(folder: Path) -> dict[str, bytes]:
    """Return the content of every file of the bundle by name, checked against `checksums.json`."""
    contents = {name: _read_file(folder, name) for name in _listed(folder)}
    if CHECKSUMS not in contents:
        raise BundleError(f"{folder.name}: no {CHECKSUMS}, expected a bundle folder; train or mirror again")
    try:
        checksums = _CHECKSUMS.validate_json(contents[CHECKSUMS])
    except ValidationError as error:
        raise BundleError(f"{folder.name}/{CHECKSUMS}: {complaint(error)}") from error
    found = set(contents) - {CHECKSUMS}
    if found != set(checksums):
        missing, surplus = sorted(set(checksums) - found), sorted(found - set(checksums))
        raise BundleError(f"{folder.name}: missing {missing}, surplus {surplus}, expected the files of {CHECKSUMS}")
    required = {CARD, CONTRACT, HISTORY, IMPORTANCE}
    if not required <= found:
        raise BundleError(f"{folder.name}: missing {sorted(required - found)}, expected a whole bundle")
    for name in sorted(found):
        digest = _sha256(contents[name])
        if digest != checksums[name]:
            expected = checksums[name][:12] if _SHA256.fullmatch(checksums[name]) else "a SHA-256"
            raise BundleError(f"{folder.name}/{name}: SHA-256 {digest[:12]}, expected {expected}; mirror it again")
    return contents


def _listed(folder: Path) -> list[str]:
    """Return the names of the files in a bundle; raise BundleError for links and for files that no bundle has."""
    if not folder.is_dir():
        raise BundleError(f"{folder}: not a folder, expected a bundle; train or mirror the model first")
    names = []
    for parent, prefix in ((folder, ""), (folder / MODELS, f"{MODELS}/")):
        if not os.path.lexists(parent):
            continue
        with os.scandir(parent) as entries:
            for entry in entries:
                name = prefix + entry.name
                mode = entry.stat(follow_symlinks=False).st_mode
                if name == MODELS and stat.S_ISDIR(mode):
                    continue
                if name not in SIZE_LIMITS or not stat.S_ISREG(mode):
                    kind = "link" if stat.S_ISLNK(mode) else "file" if stat.S_ISREG(mode) else "special file or folder"
                    raise BundleError(f"{folder.name}: {kind} {name[:80]!r}, expected only {', '.join(SIZE_LIMITS)}")
                names.append(name)
    return names


def _read_file(folder: Path, name: str) -> bytes:
    limit = SIZE_LIMITS[name]
    try:
        with open(folder / name, "rb", opener=opened_plainly) as file:  # Path.open takes no opener
            data = file.read(limit + 1)
    except OSError as error:
        raise BundleError(f"{folder.name}/{name}: cannot be read ({error.strerror})") from error
    if len(data) > limit:
        raise BundleError(f"{folder.name}/{name}: more than {limit} bytes, expected at most that")
    return data


def opened_plainly(path: str, flags: int) -> int:
    """Open a file without following a link or blocking on a pipe, since it may have been replaced after the listing."""
    return os.open(path, flags | os.O_NOFOLLOW | os.O_NONBLOCK)


def _sha256(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


def write_bundle(
    folder: Path,
    *,
    card: Card,
    contract: FeatureContract,
    boosters: Mapping[str, "Booster"],
    history: History,
    importances: Sequence[Importance],
    forest: tuple[bytes, bytes] | None = None,
) -> str:
    """Write a bundle atomically and return its digest; the same inputs give the same bytes.

    `forest` holds the two files of the quantile forest: its trees, and the values of its leaves.
    """
    if sorted(card.boosters) != sorted(boosters):
        raise BundleError(f"{card.name}: boosters {sorted(boosters)}, expected {sorted(card.boosters)} (the card's)")
    if card.contract_fingerprint != contract.fingerprint:
        raise BundleError(
            f"{card.name}: contract {contract.fingerprint[:12]}, expected {card.contract_fingerprint[:12]} (the card's)"
        )
    if card.has_forest != (forest is not None):
        raise BundleError(f"{card.name}: found {'a' if forest else 'no'} forest, expected the opposite (the card's)")
    tail = io.BytesIO()
    history.tail().write_parquet(tail, compression="zstd")
    contents = {
        CARD: card.to_json(),
        CONTRACT: contract.to_json().encode(),
        IMPORTANCE: canonical_json([i.model_dump(mode="json") for i in importances]),
        HISTORY: tail.getvalue(),
        **{f"{MODELS}/{target}.ubj": bytes(booster.save_raw("ubj")) for target, booster in boosters.items()},
    }
    if forest is not None:
        contents |= {f"{MODELS}/{FOREST}.{kind}": data for kind, data in zip(("ubj", "f32"), forest, strict=True)}
    contents[CHECKSUMS] = canonical_json({name: _sha256(data) for name, data in contents.items()})
    _write_whole(folder, contents)
    return _sha256(contents[CHECKSUMS])


def _write_whole(folder: Path, contents: Mapping[str, bytes]) -> None:
    """Write the files to a temporary folder next to `folder`, then rename it to `folder` in one step."""
    folder.parent.mkdir(parents=True, exist_ok=True)
    if os.path.lexists(folder):
        raise BundleError(f"{folder}: already exists, expected a new folder for a bundle")
    stage = Path(tempfile.mkdtemp(prefix=f".{folder.name}.", dir=folder.parent))
    try:
        stage.chmod(0o755)
        (stage / MODELS).mkdir()
        for name, data in contents.items():
            (stage / name).write_bytes(data)
        stage.rename(folder)
    except BaseException:
        shutil.rmtree(stage, ignore_errors=True)
        raise
