"""The model card: a model's metadata, metrics and importances, validated when read."""

import json
import math
import re
from collections.abc import Mapping, Sequence
from functools import cached_property
from typing import Annotated, Final, Literal

from pydantic import (
    AwareDatetime,
    BaseModel,
    ConfigDict,
    Field,
    TypeAdapter,
    ValidationError,
    field_validator,
    model_validator,
)

from modelserve.bundle.alike import Alike, Key
from modelserve.errors import BundleError
from modelserve.wrong_values import fault_of

__all__ = [
    "COMBINABLE",
    "FITTED",
    "MODEL_NAME",
    "RESPONSE",
    "RUNTIME_TARGET",
    "SIMPLE",
    "TYPICAL",
    "TYPICAL_JOBS",
    "USAGE_TARGETS",
    "WIDEST",
    "Card",
    "CombinationState",
    "Importance",
    "Resource",
    "ResourceImportance",
    "ResponseState",
    "VerdictWord",
    "answer_of",
    "canonical_json",
    "card_from",
    "complaint",
]

COMBINABLE: Final = ("xgboost", "forest", "reference", "similar_jobs", "same_gpus", "newest_jobs")
"""Names of the forecasts that can be combined. The last three are `features.references.HISTORY_FORECASTS`."""

FITTED: Final = frozenset({"xgboost", "forest"})
"""Members that are fitted to training rows; the others need no training."""

TYPICAL: Final = "typical"
"""Name of the answer that is the same for every job: p50 and p90 of the newest training jobs (`Card.typical_s`)."""

TYPICAL_JOBS: Final = 1000
"""Maximum number of training jobs behind `TYPICAL`: those that ended last."""

SIMPLE: Final = (*(each for each in COMBINABLE if each not in FITTED), TYPICAL)
"""Names of the simple answers; one of them serves alone if a trained model is surely worse."""

VerdictWord = Literal["better", "level", "worse", "too few", "passed", "failed"]
"""Verdicts of the gate (`pipelines.models.judging`); the last two are those on a usage model."""

WIDEST: Final = 1.0
"""Largest p90 offset of a combination in log units. The smallest is 0, so calibration never narrows it."""

FORMAT: Final = 1
"""Version of the bundle format; bundles of any other version are rejected."""

RUNTIME_TARGET: Final = "run_s"
"""Target of a run-time model. Its booster has one output per quantile of log run time."""

RESPONSE: Final = "response"
"""Name of the booster of a trusted response model, in the bundle of a run-time model."""

USAGE_TARGETS: Final = ("cpu_cores", "mem_gib", "gpus", "gpu_mem_gib")
"""Targets of a usage model. Each has a booster whose output is an upper quantile of log1p of the use per instance."""

MODEL_NAME: Final = re.compile(r"(runtime|usage)\.([A-Za-z0-9][A-Za-z0-9_-]{0,63})\.([A-Za-z0-9][A-Za-z0-9_-]{0,63})")
"""Pattern of model names, `<kind>.<trace>.<type>`. A name is also a folder name, so other characters are rejected."""

NameText = Annotated[str, Field(min_length=1, max_length=256)]
Resource = Literal["cpu_cores", "mem_gib", "gpus"]
Quantile = Annotated[float, Field(gt=0.0, lt=1.0)]
Seconds = Annotated[float, Field(ge=1.0)]


class _Strict(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class Importance(_Strict):
    """Permutation importance of one feature on held-out rows: of the forecast that serves, over `repeats` shuffles.

    `sign` is the rank correlation of a change of the feature with the change of the prediction. `xgboost_gain` is
    XGBoost's own importance: the feature's share of the total gain of its splits; null if XGBoost does not answer.
    """

    feature: NameText
    mean: float | None
    std: float | None
    repeats: int = Field(ge=0)
    sign: float | str | None
    xgboost_gain: float | None = None


class ResourceImportance(_Strict):
    """Permutation importance of one resource on held-out rows: its request and all features derived from it.

    `net_bytes_per_s` and `gpu_mem_gib` are not requested: they are what similar jobs used (`ResponseState`).

    `sign` is the rank correlation of a change of the request with the change of the predicted run time. `note` says if
    the effect is unknown because all jobs have the same amount.
    """

    resource: Resource | Literal["net_bytes_per_s", "gpu_mem_gib"]
    mean: float | None
    std: float | None
    repeats: int = Field(ge=0)
    sign: float | None
    note: str | None = None


class ResponseState(_Strict):
    """What the response model of a task type found: how log run time depends on the five resources.

    It is one XGBoost, separate from the run-time model, and `trusted` if it surely beats a constant on groups of jobs
    that it was not trained on. `lead` is the share of the constant's squared error that it removes, with its 95 %
    interval; null without enough jobs, for the reason `why`.
    """

    trusted: bool
    why: str
    rows: int = Field(ge=0)
    lead: float | None = None
    lead_lo: float | None = None
    lead_hi: float | None = None
    importances: tuple[ResourceImportance, ...] = ()


class CombinationState(_Strict):
    """The members of a combination of forecasts, and its state (`modelserve.bundle.combination`).

    The third number from the end of the state is the p90 offset. `TYPICAL` only serves alone.
    """

    members: tuple[NameText, ...] = Field(min_length=1, max_length=16)
    state: tuple[float, ...]

    @model_validator(mode="after")
    def _is_whole(self) -> "CombinationState":
        unknown = sorted(set(self.members) - set(COMBINABLE))
        if self.members != (TYPICAL,) and (unknown or len(set(self.members)) < len(self.members)):
            raise ValueError(f"members {list(self.members)}, expected some of {', '.join(COMBINABLE)}"[:240])
        size, state = 2 * (len(self.members) + 1) + 4, self.state
        if len(state) != size or not all(0.0 <= each < math.inf for each in state) or state[-3] > WIDEST:
            raise ValueError(
                f"a state of {len(state)} numbers, expected {size} finite ones, none below 0, "
                f"and a p90 offset (the third from the end) of at most {WIDEST:g}"
            )
        return self


def answer_of(members: Sequence[str]) -> str:
    """Return what answers: the only member, `combined` (with trained members), or `history`; `trees` without any.

    >>> answer_of(["xgboost", "reference"]), answer_of(["reference", "same_gpus"]), answer_of(["same_gpus"])
    ('combined', 'history', 'same_gpus')
    """
    if len(members) < 2:
        return members[0] if members else "trees"
    return "history" if FITTED.isdisjoint(members) else "combined"


class Card(BaseModel):
    """Metadata of a model: what it predicts, what it was trained on, and how it scored on held-out jobs.

    If `relative`, run times in the features and outputs are relative to the recent run time of similar jobs
    (`features.build`). `offsets` are added to the outputs in log units; their keys are `p50` and `p90`, or usage
    targets. `support` is the smallest and largest request in training, by resource. `metrics` are computed on held-out
    jobs, null where undefined. `important` are resources that are not shrunk because of their
    `resource_importances` (null in models that do not store them). `alike` are the upper bounds on the use of similar
    jobs (see `held`), null if not computed. `combination` tells how a run-time model is combined with other forecasts;
    null if it answers alone. `no_importances` is the reason why there are no importances, null if there are.
    `response` is null for usage models.
    `typical_s` are p50 and p90 of the run time of its newest training jobs. `verdict` is that of the gate, with its
    reasons `why`, null for a model that was not judged.
    """

    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False)

    format: Literal[1] = FORMAT
    name: str
    kind: Literal["runtime", "usage"]
    trace: NameText
    task_type: NameText
    targets: tuple[str, ...] = Field(min_length=1, max_length=len(USAGE_TARGETS))
    quantiles: tuple[Quantile, ...] = Field(min_length=1, max_length=16)
    relative: bool
    offsets: dict[str, float]
    important: tuple[Resource, ...]
    support: dict[Resource, tuple[float, float]]
    params: dict[str, str | float | int | None]
    metrics: dict[str, float | None]
    until: AwareDatetime
    created: AwareDatetime
    rows: int = Field(ge=0)
    data_fingerprint: NameText
    contract_fingerprint: NameText
    made_with: dict[str, str] = Field(default_factory=dict)
    alike: tuple[Alike, ...] | None = None
    resource_importances: tuple[ResourceImportance, ...] | None = None
    no_importances: str | None = None
    response: ResponseState | None = None
    combination: CombinationState | None = None
    typical_s: tuple[Seconds, Seconds] | None = None
    verdict: VerdictWord | None = None
    why: str | None = None

    @field_validator("params", "metrics", mode="before")
    @classmethod
    def _nothing_for_nan(cls, values: object) -> object:
        """Replace NaN and infinity by null, since JSON has neither."""
        if not isinstance(values, dict):
            return values
        return {k: None if isinstance(v, float) and not math.isfinite(v) else v for k, v in values.items()}

    @model_validator(mode="after")
    def _name_and_targets_agree(self) -> "Card":
        if not MODEL_NAME.fullmatch(self.name) or self.name != f"{self.kind}.{self.trace}.{self.task_type}":
            raise ValueError(f"name {self.name[:80]!r}, expected {self.kind}.{self.trace}.{self.task_type}"[:240])
        allowed = {RUNTIME_TARGET} if self.kind == "runtime" else set(USAGE_TARGETS)
        if not set(self.targets) <= allowed or len(set(self.targets)) != len(self.targets):
            raise ValueError(f"targets {list(self.targets)}, expected some of {sorted(allowed)}")
        if self.answer == TYPICAL and self.typical_s is None:
            raise ValueError(f"no typical_s, expected two run times for the answer {TYPICAL}")
        return self

    @property
    def answer(self) -> str:
        """What the model answers with (`answer_of`)."""
        return answer_of(() if self.combination is None else self.combination.members)

    @property
    def has_forest(self) -> bool:
        """Whether a forest is among the members of the model's combination."""
        return self.combination is not None and "forest" in self.combination.members

    @property
    def responds(self) -> bool:
        """Whether the bundle has a trusted response model, the booster `RESPONSE`."""
        return self.response is not None and self.response.trusted

    @property
    def boosters(self) -> tuple[str, ...]:
        """Names of the boosters in the model's bundle."""
        return (*self.targets, RESPONSE) if self.responds else self.targets

    @property
    def judged(self) -> tuple[Resource, ...]:
        """The resources whose smaller requests may make a run longer, so that Algorithm 1 predicts by how much.

        With a trusted response model, those on which run time surely depends. Without one, all resources; none if there
        were too few later jobs to judge the run-time forecast.
        """
        if self.responds:
            return self.important
        return () if self.verdict == "too few" else tuple(self.support)

    @property
    def judged_by(self) -> str:
        """The model that judges run times of smaller requests in Algorithm 1; if not the response model, why."""
        if not self.responds and self.verdict == "too few":
            return "floors of use alone: too few later jobs to judge the run-time forecast"
        if self.response is None:
            return "run-time forecast; no response model was trained"
        if not self.response.trusted:
            return f"run-time forecast; the response model is not trusted: {self.response.why}"
        sure = ", ".join(self.important) or "no request: floors of use decide"
        return f"response model: run time surely depends on {sure}"

    @cached_property
    def alike_by_key(self) -> dict[Key, Alike] | None:
        """The upper bounds of similar jobs by key; None if not computed."""
        return None if self.alike is None else {each.key: each for each in self.alike}

    def to_json(self) -> bytes:
        """Return the card as JSON; equal cards give equal bytes."""
        return canonical_json(self.model_dump(mode="json"))


def card_from(values: Mapping[str, object]) -> Card:
    """Return a card from a mapping of plain values, validated."""
    try:
        return Card.model_validate(values)
    except ValidationError as error:
        raise BundleError(f"card of {str(values.get('name'))[:80]}: {complaint(error)}") from error


def complaint(error: ValidationError) -> str:
    """Return the first error as `field: expected ...` in one line, and the number of errors in other fields."""
    first, *others = error.errors(include_url=False, include_input=False)
    field = repr(".".join(str(part)[:64] for part in first["loc"]))[1:-1]
    # A list that stops at its first bad item is also reported as too short.
    more = sum(other["loc"] != first["loc"][: len(other["loc"])] for other in others)
    message = fault_of(first)[:200]
    return (f"{field}: " if field else "") + message + (f" (and {more} more)" if more else "")


IMPORTANCES: Final = TypeAdapter(tuple[Importance, ...])


def canonical_json(value: object) -> bytes:
    """Return readable JSON in a unique form: sorted keys, indented by two spaces, a final newline; NaN is rejected.

    >>> print(canonical_json({"b": 1, "a": None}).decode(), end="")
    {
      "a": null,
      "b": 1
    }
    """
    return (json.dumps(value, sort_keys=True, indent=2, allow_nan=False, ensure_ascii=False) + "\n").encode()
