"""Calls for the models that a caller may see: their versions, aliases, metrics, importances and cards.

Read from the serving snapshot and the stored comparisons with challengers.
"""

from difflib import get_close_matches

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
from modelserve.loading.models import Snapshot
from modelserve.loading.served import ServedModel
from modelserve.store import Store
from modelserve.store.answers import newest_comparisons

__all__ = ["card_of", "importances_of", "list_models", "show_model"]


def list_models(snapshot: Snapshot, caller: Caller) -> ModelsAnswer:
    """Return the models of the traces that the caller may see."""
    names = _within_reach(snapshot, caller)
    return ModelsAnswer(
        generation=snapshot.generation,
        models=tuple(_row(model, alias) for name in names for alias, model in _versions(snapshot, name).items()),
        failures=tuple(failure for name in names for failure in _failures(snapshot, name)),
    )


def show_model(
    snapshot: Snapshot, caller: Caller, name: str, compared: tuple[Store, int, int] | None = None
) -> ModelAnswer:
    """Return one model; with `compared`, also how its challenger differs from its champion.

    `compared` is the store of comparisons, the number of newest jobs to summarise, and the number of dropped answers.
    """
    _check_known(snapshot, caller, name)
    versions = _versions(snapshot, name)
    rows = {alias: _row(model, alias) for alias, model in versions.items()}
    return ModelAnswer(
        name=name,
        generation=snapshot.generation,
        champion=rows.get("champion"),
        challenger=rows.get("challenger"),
        shadow=None if compared is None or len(versions) < 2 else _shadow(*compared, caller, versions),
        failures=tuple(_failures(snapshot, name)),
    )


def importances_of(snapshot: Snapshot, caller: Caller, name: str, alias: Alias = "champion") -> ImportancesAnswer:
    """Return the importances of a model's features, the most important first; errors as `card_of`."""
    bundle = _model(snapshot, caller, name, alias).bundle
    ranked = sorted(bundle.importances, key=lambda each: -(each.mean if each.mean is not None else float("-inf")))
    return ImportancesAnswer(
        name=name,
        version=bundle.version,
        alias=alias,
        importances=None if bundle.card.no_importances else tuple(ranked),
        reason=bundle.card.no_importances,
        important=bundle.card.important,
        resources=bundle.card.resource_importances,
        response=bundle.card.response,
    )


def card_of(snapshot: Snapshot, caller: Caller, name: str, alias: Alias = "champion") -> CardAnswer:
    """Return the card of a model's champion or challenger."""
    bundle = _model(snapshot, caller, name, alias).bundle
    return CardAnswer(name=name, version=bundle.version, alias=alias, digest=bundle.digest, card=bundle.card)


def _model(snapshot: Snapshot, caller: Caller, name: str, alias: Alias) -> ServedModel:
    _check_known(snapshot, caller, name)
    model = _versions(snapshot, name).get(alias)
    if model is None:
        why = next((each.error for each in _failures(snapshot, name) if each.alias == alias), "none has that alias")
        raise NotKnown(f"{name}: no {alias} is loaded ({why})")
    return model


def _versions(snapshot: Snapshot, name: str) -> dict[Alias, ServedModel]:
    aliased: dict[Alias, ServedModel | None] = {
        "champion": snapshot.champions.get(name),
        "challenger": snapshot.challengers.get(name),
    }
    return {alias: model for alias, model in aliased.items() if model is not None}


def _failures(snapshot: Snapshot, name: str) -> list[ModelFailure]:
    keys: dict[Alias, str] = {"champion": name, "challenger": f"{name}@{CHALLENGER}"}
    failures = snapshot.failures
    return [ModelFailure(name=name, alias=alias, error=failures[key]) for alias, key in keys.items() if key in failures]


def _within_reach(snapshot: Snapshot, caller: Caller) -> list[str]:
    named = {*snapshot.champions, *snapshot.challengers, *(key.partition("@")[0] for key in snapshot.failures)}
    matches = [match for name in sorted(named) if (match := MODEL_NAME.fullmatch(name))]
    return [match[0] for match in matches if caller.reaches(match[2])]


def _check_known(snapshot: Snapshot, caller: Caller, name: str) -> None:
    """Raise `NotKnown`, with similar names, unless the caller may see the model.

    The error is the same for a model that does not exist and for one that the caller may not see.
    """
    names = _within_reach(snapshot, caller)
    if name not in names:
        near = ", ".join(get_close_matches(name[:200], names, n=3, cutoff=0.0)) or "none: no model is loaded"
        raise NotKnown(f"model {name[:80]!r} is not known, expected one of {near}")


def _row(model: ServedModel, alias: Alias) -> ModelRow:
    bundle, card = model.bundle, model.bundle.card
    of_card = {name: getattr(card, name) for name in ModelRow.model_fields if name in type(card).model_fields}
    of_bundle = {"version": bundle.version, "digest": bundle.digest, "features": len(bundle.contract.names)}
    of_bundle["answer"] = card.answer
    return ModelRow.model_validate({**of_card, **of_bundle, "alias": alias})


def _shadow(
    store: Store, window: int, dropped: int, caller: Caller, versions: dict[Alias, ServedModel]
) -> ShadowRow | None:
    champion, challenger = versions["champion"], versions["challenger"]
    if champion.bundle.card.kind != "runtime":
        return None
    pair = (champion.reference, challenger.reference)
    rows = newest_comparisons(store, limit=window, pair=pair, clusters=caller.clusters)
    known = [(each.challenger_p50_s, each.p50_s) for each in rows if each.challenger_p50_s and each.p50_s]
    theirs, ours = np.log(np.array(known).reshape(-1, 2)).T
    return ShadowRow(
        jobs=len(known),
        median_log_ratio=float(np.median(theirs - ours)) if known else None,
        p90_abs_log_ratio=float(np.quantile(np.abs(theirs - ours), 0.9)) if known else None,
        dropped=dropped,
    )
