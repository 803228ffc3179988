"""Calls for the models that a caller may see: their versions, aliases, metrics, importances and cards.

Read from the serving snapshot and the stored comparisons with challengers.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from difflib import get_close_matches
from typing import TYPE_CHECKING

import numpy as np

from modelserve.bundle.card import MODEL_NAME
from modelserve.bundle.champions import CHALLENGER
from modelserve.callers import Caller
from modelserve.contract.fields import Alias
from modelserve.contract.models import (
    CardAnswer,
    ImportancesAnswer,
    ModelAnswer,
    ModelFailure,
    ModelRow,
    ModelsAnswer,
    ShadowRow,
)
from modelserve.errors import NotKnown
from modelserve.store.answers import newest_comparisons

if TYPE_CHECKING:
    from modelserve.loading.models import Snapshot
    from modelserve.loading.served import ServedModel
    from modelserve.store import Store

__all__ = ["Compared", "card_of", "importances_of", "list_models", "show_model"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Compared:
    """The store of comparisons with challengers, the number of newest jobs to summarise, and the number dropped."""

    store: "Store"
    window: int
    dropped: int


def list_models(snapshot: "Snapshot", caller: Caller) -> ModelsAnswer:
    """Return the models of the traces that the caller may see."""
    names = _within_reach(snapshot, caller)
    return ModelsAnswer(
        generation=snapshot.generation,
        models=tuple(_row(model, alias) for name in names for alias, model in _versions(snapshot, name).items()),
        failures=tuple(failure for name in names for failure in _failures(snapshot, name)),
    )


def show_model(snapshot: "Snapshot", caller: Caller, name: str, compared: Compared | None) -> ModelAnswer:
    """Return one model; with `compared`, also how its challenger differs from its champion."""
    _check_known(snapshot, caller, name)
    versions = _versions(snapshot, name)
    rows = {alias: _row(model, alias) for alias, model in versions.items()}
    return ModelAnswer(
        name=name,
        generation=snapshot.generation,
        champion=rows.get("champion"),
        challenger=rows.get("challenger"),
        shadow=None if compared is None or len(versions) < 2 else _shadow(compared, caller, versions),
        failures=tuple(_failures(snapshot, name)),
    )


def importances_of(snapshot: "Snapshot", caller: Caller, name: str, alias: Alias = "champion") -> ImportancesAnswer:
    """Return the importances of a model's features, the most important first; errors as `card_of`."""
    bundle = _model(snapshot, caller, name, alias).bundle
    ranked = sorted(bundle.importances, key=lambda each: -(each.mean if each.mean is not None else float("-inf")))
    return ImportancesAnswer(
        name=name,
        version=bundle.version,
        alias=alias,
        importances=tuple(ranked),
        important=bundle.card.important,
        resources=bundle.card.resource_importances,
    )


def card_of(snapshot: "Snapshot", caller: Caller, name: str, alias: Alias = "champion") -> CardAnswer:
    """Return the card of a model's champion or challenger."""
    bundle = _model(snapshot, caller, name, alias).bundle
    return CardAnswer(name=name, version=bundle.version, alias=alias, digest=bundle.digest, card=bundle.card)


def _model(snapshot: "Snapshot", caller: Caller, name: str, alias: Alias) -> "ServedModel":
    _check_known(snapshot, caller, name)
    model = _versions(snapshot, name).get(alias)
    if model is None:
        why = next((each.error for each in _failures(snapshot, name) if each.alias == alias), "none has that alias")
        raise NotKnown(f"{name}: no {alias} is loaded ({why})")
    return model


def _versions(snapshot: "Snapshot", name: str) -> "dict[Alias, ServedModel]":
    aliased: tuple[tuple[Alias, ServedModel | None], ...] = (
        ("champion", snapshot.champions.get(name)),
        ("challenger", snapshot.challengers.get(name)),
    )
    return {alias: model for alias, model in aliased if model is not None}


def _within_reach(snapshot: "Snapshot", caller: Caller) -> list[str]:
    named = {*snapshot.champions, *snapshot.challengers, *(key.partition("@")[0] for key in snapshot.failures)}
    matches = [match for name in sorted(named) if (match := MODEL_NAME.fullmatch(name))]
    return [match[0] for match in matches if caller.reaches(match[2])]


def _check_known(snapshot: "Snapshot", caller: Caller, name: str) -> None:
    """Raise `NotKnown`, with similar names, unless the caller may see the model.

    The error is the same for a model that does not exist and for one that the caller may not see.
    """
    names = _within_reach(snapshot, caller)
    if name not in names:
        near = ", ".join(get_close_matches(name[:200], names, n=3, cutoff=0.0)) or "none: no model is loaded"
        raise NotKnown(f"model {name[:80]!r} is not known, expected one of {near}")


def _row(model: "ServedModel", alias: Alias) -> ModelRow:
    bundle, card = model.bundle, model.bundle.card
    return ModelRow(
        name=card.name,
        kind=card.kind,
        trace=card.trace,
        task_type=card.task_type,
        version=bundle.version,
        alias=alias,
        digest=bundle.digest,
        targets=card.targets,
        quantiles=card.quantiles,
        metrics=card.metrics,
        until=card.until,
        created=card.created,
        rows=card.rows,
        features=len(bundle.contract.names),
    )


def _shadow(compared: Compared, caller: Caller, versions: "Mapping[Alias, ServedModel]") -> ShadowRow | None:
    champion, challenger = versions["champion"], versions["challenger"]
    if champion.bundle.card.kind != "runtime":
        return None
    pair = (champion.reference, challenger.reference)
    rows = newest_comparisons(compared.store, limit=compared.window, pair=pair, clusters=caller.clusters)
    known = [(each.challenger_p50_s, each.p50_s) for each in rows if each.challenger_p50_s and each.p50_s]
    if not known:
        return ShadowRow(jobs=0, median_log_ratio=None, p90_abs_log_ratio=None, dropped=compared.dropped)
    theirs, ours = np.log(np.array(known)).T
    return ShadowRow(
        jobs=len(known),
        median_log_ratio=float(np.median(theirs - ours)),
        p90_abs_log_ratio=float(np.quantile(np.abs(theirs - ours), 0.9)),
        dropped=compared.dropped,
    )


def _failures(snapshot: "Snapshot", name: str) -> list[ModelFailure]:
    aliased: tuple[tuple[Alias, str], ...] = (("champion", name), ("challenger", f"{name}@{CHALLENGER}"))
    return [
        ModelFailure(name=name, alias=alias, error=snapshot.failures[key])
        for alias, key in aliased
        if key in snapshot.failures
    ]
