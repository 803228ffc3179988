"""Answers about the models themselves: which there are, their importances and cards, whether a worker is ready.

No call is made here. Read by `modelserve.client`.
"""

from typing import Literal

from pydantic import AwareDatetime

from modelserve.bundle.card import Card, Importance, Resource, ResourceImportance
from modelserve.contract.fields import Alias, Answer, Kind


class ModelRow(Answer):
    """One version of a model that is loaded under an alias, by its card; `digest` names every byte of it."""

    name: str
    kind: Kind
    trace: str
    task_type: str
    version: str | None
    alias: Alias
    digest: str
    targets: tuple[str, ...]
    quantiles: tuple[float, ...]
    metrics: dict[str, float | None]
    until: AwareDatetime
    created: AwareDatetime
    rows: int
    features: int


class ModelFailure(Answer):
    """An alias whose version cannot be loaded; the former version, where there was one, serves on."""

    name: str
    alias: Alias
    error: str


class ModelList(Answer):
    """Every model within reach, by name; `generation` grows with each change."""

    generation: int
    models: tuple[ModelRow, ...]
    failures: tuple[ModelFailure, ...]


class ShadowSeen(Answer):
    """How a challenger answered beside the champion: logs of its p50 run times over the champion's, newest jobs.

    `dropped` are the answers, of any model, that the worker asked had no time to compare.
    """

    jobs: int
    median_log_ratio: float | None
    p90_abs_log_ratio: float | None
    dropped: int


class ModelShown(Answer):
    """One model: what is loaded of it, how its challenger does, and what is wrong with what is not loaded."""

    name: str
    generation: int
    champion: ModelRow | None
    challenger: ModelRow | None
    shadow: ShadowSeen | None = None
    failures: tuple[ModelFailure, ...]


class Importances(Answer):
    """Permutation importances on held-out rows, the most important first, and what their numbers mean."""

    name: str
    version: str | None
    alias: Alias
    mean_means: str
    sign_means: str
    importances: tuple[Importance, ...]
    important: tuple[Resource, ...]
    resource_sign_means: str
    resources: tuple[ResourceImportance, ...] | None


class CardShown(Answer):
    """A model's card as it was written at training."""

    name: str
    version: str | None
    alias: Alias
    digest: str
    card: Card


class Readiness(Answer):
    """Whether calls should be sent to a worker, and what is amiss."""

    status: Literal["ready", "draining", "no model"]
    generation: int
    serving: int
    failing: int
    models: tuple[str, ...]
    failures: dict[str, str]
    store: str | None
