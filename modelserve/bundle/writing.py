"""Write a bundle: the folder with one model and everything it needs to predict, complete or not at all."""

import io
import os
import shutil
import tempfile
from collections.abc import Mapping, Sequence
from hashlib import sha256
from pathlib import Path
from typing import TYPE_CHECKING

from features.contract import FeatureContract
from features.history import History
from modelserve.bundle.bundle import CARD, CHECKSUMS, CONTRACT, FOREST, HISTORY, IMPORTANCE, MODELS, POPULATION
from modelserve.bundle.card import Card, Importance, canonical_json
from modelserve.bundle.population import Population
from modelserve.errors import BundleError

if TYPE_CHECKING:
    from xgboost import Booster

__all__ = ["write_bundle"]


def write_bundle(
    folder: Path,
    *,
    card: Card,
    contract: FeatureContract,
    boosters: Mapping[str, "Booster"],
    history: History,
    importances: Sequence[Importance],
    population: Population | None = None,
    forest: tuple[bytes, bytes] | None = None,
) -> str:
    """Write a bundle atomically and return its digest; the same inputs give the same bytes.

    `forest` holds the two files of the quantile forest: its trees, and the values of its leaves.
    """
    if sorted(card.targets) != sorted(boosters):
        raise BundleError(f"{card.name}: boosters {sorted(boosters)}, expected {sorted(card.targets)} (the card's)")
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
    if population is not None:
        contents[POPULATION] = population.to_json()
    contents[CHECKSUMS] = canonical_json({name: sha256(data).hexdigest() for name, data in contents.items()})
    _write_whole(folder, contents)
    return sha256(contents[CHECKSUMS]).hexdigest()


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
