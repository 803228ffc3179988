"""Responses about models (versions, importances, cards) and about the readiness of a worker, as pydantic models.

Made by `modelserve.calls.catalogue` and `/readyz`, read by `modelserve.client`.
"""

from typing import Final, Literal

from pydantic import AwareDatetime, Field

from modelserve.bundle.card import Card, Importance, Resource, ResourceImportance, ResponseState, VerdictWord
from modelserve.contract.fields import Answer, Kind

__all__ = [
    "CardAnswer", "ImportancesAnswer", "MirrorState", "ModelFailure", "ModelRow", "ModelsAnswer", "Ready",
]  # fmt: skip

MEAN: Final = (
    "how much worse the held-out error of the forecast that serves became when the feature's values were shuffled "
    "among the rows: the mean over the repeats, in the units of the error; std is their spread"
)
SIGN: Final = (
    "Spearman's rank correlation of what shuffling does to the feature with what it does to the answer, -1 to 1: above "
    "0, larger values come with larger answers. It says in which direction, not how much; null where it has none"
)


class ModelRow(Answer):
    """One loaded model, with data from its card."""

    name: str
    kind: Kind
    trace: str
    task_type: str
    version: str | None
    digest: str = Field(description="SHA-256 of the bundle's checksums: names every byte of the model")
    targets: tuple[str, ...]
    quantiles: tuple[float, ...]
    metrics: dict[str, float | None] = Field(description="held-out figures at training")
    until: AwareDatetime = Field(description="only jobs that ended before were trained on")
    created: AwareDatetime
    rows: int = Field(description="jobs trained on")
    answer: str = Field(
        description="what answers: combined (trained members and the history), xgboost or forest alone, history, or a "
        "simple answer (similar_jobs, same_gpus, newest_jobs, reference, typical); trees for a usage model"
    )
    verdict: VerdictWord | None = Field(
        description="of the gate on later jobs: better than the best simple answer, level, worse (a simple answer "
        "serves) or too few to tell; passed or failed for a usage model"
    )
    why: str | None = Field(description="the reasons for the verdict")
    features: int


class ModelFailure(Answer):
    """A model whose champion cannot be loaded; the former version, if any, keeps serving."""

    name: str
    error: str


class ModelsAnswer(Answer):
    """The models that the caller may see, by name; `generation` increases with each change of the loaded models."""

    generation: int
    models: tuple[ModelRow, ...]
    failures: tuple[ModelFailure, ...]


class ImportancesAnswer(Answer):
    """Permutation importances on held-out rows, most important first, with explanations of their numbers.

    `importances` is null, and `reason` says why, if the answer has no columns to permute, such as one from the history
    alone.
    """

    name: str
    version: str | None
    mean_means: str = MEAN
    sign_means: str = SIGN
    importances: tuple[Importance, ...] | None
    reason: str | None
    important: tuple[Resource, ...] = Field(description="resources that are not shrunk, but where much was measured")
    resources: tuple[ResourceImportance, ...] | None = Field(
        description="importance of each requested resource and what follows from it; null if the model kept none"
    )
    response: ResponseState | None = Field(
        description="the response model: what run time depends on among CPU, memory, GPUs, network and GPU memory, and "
        "how surely; null of usage models"
    )


class CardAnswer(Answer):
    """The card of a model, written at training."""

    name: str
    version: str | None
    digest: str
    card: Card


class MirrorState(Answer):
    """State of the sync process: seconds since its last successful round (null: none), and errors of the last round."""

    age_s: float | None
    error: str | None
    failing: list[str]


class Ready(Answer):
    """Readiness of a worker for calls, and its problems.

    `models` and `failures` (errors of models that could not be loaded) list models that the caller may see; they are
    empty if the call lacks a required token. `store` is the error of the store or null; predictions do not need it. If
    the store's file was removed or replaced, the worker is not ready (`no store`).
    """

    status: Literal["ready", "draining", "no store", "no model"]
    generation: int
    serving: int
    failing: int
    models: list[str]
    failures: dict[str, str]
    mirror: MirrorState | None
    store: str | None
