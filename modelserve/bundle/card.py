"""The model card: a model's metadata, metrics and importances, and upper bounds on the peak use of similar jobs.

Cards are validated when read. Files are read and written by `modelserve.bundle.bundle`.
Filled in by `pipelines.models.model`; read by `modelserve.bundle.predictor`, `modelserve.calls` and the commands.
"""

import json
import math
import re
from collections.abc import Mapping, Sequence
from functools import cached_property
from typing import Annotated, Final, Literal

import numpy as np
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

from modelserve.errors import BundleError
from scheduler_core.types import FloatArray, IntArray, Job, Request

__all__ = [
    "MODEL_NAME",
    "PARAMETER_SERVER",
    "RUNTIME_TARGET",
    "USAGE_TARGETS",
    "Alike",
    "Card",
    "Importance",
    "Resource",
    "ResourceImportance",
    "alike_key",
    "canonical_json",
    "card_from",
    "complaint",
    "held",
]

HARD: Final = frozenset({"mem_gib", "gpu_mem_gib"})
"""Usage targets for which too small an allocation kills the job. For them `held` takes the larger of two bounds."""

DIGITS: Final = 3
"""Number of significant digits in which requests must agree to be similar: 29.296875 GiB and 29.3 GiB are similar."""

PARAMETER_SERVER: Final = "ps"
"""Role of parameter servers. Traces report the use of workers for them, so their measured runs are not counted."""

OWN_RUNS: Final = 20
"""Minimum number of measured runs of a job's own group and role; with fewer, `held` uses the bound of similar jobs."""

ROOM: Final[Mapping[str, float]] = {"cpu_cores": 1.1, "mem_gib": 1.5, "gpus": 1.0, "gpu_mem_gib": 1.3}
"""Factor on predicted use that gives its upper bound, by target: larger for memory, where too little kills jobs."""

Amount = Annotated[float, Field(ge=0.0, allow_inf_nan=False)]
Key = tuple[str, str, str, str]


class Alike(BaseModel):
    """Upper bounds on the use of similar jobs, which have the same role and request.

    `needs` holds the upper bound per instance of each usage target. `groups` counts the groups of these jobs, not their
    runs, because runs of one group use about the same. A resource is null if its request was not recorded.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    role: Annotated[str, Field(min_length=1, max_length=256)]
    cpu_cores: Amount | None
    mem_gib: Amount | None
    gpus: Amount | None
    groups: int = Field(ge=1)
    needs: dict[str, Amount]

    @property
    def key(self) -> Key:
        """The key that these similar jobs share."""
        return alike_key(self.role, (self.cpu_cores, self.mem_gib, self.gpus))


def alike_key(role: str, request: Sequence[float | None]) -> Key:
    """Return the key that similar jobs share: the role, and the request rounded to `DIGITS` significant digits.

    >>> alike_key("worker", (6.0, 29.296875, None))
    ('worker', '6', '29.3', 'nan')
    """
    cpu_cores, mem_gib, gpus = (f"{np.nan if value is None else value:.{DIGITS}g}" for value in request)
    return (role, cpu_cores, mem_gib, gpus)


def held(
    found: Mapping[Key, Alike], jobs: Sequence[Job], use: Mapping[str, FloatArray], own_runs: IntArray
) -> tuple[dict[str, FloatArray], IntArray]:
    """Return upper bounds (n,) on the use of jobs by target, and the number of measured runs or groups behind each.

    If a job's own group and role have at least `OWN_RUNS` measured runs, the bound is the predicted use times `ROOM`.
    Otherwise it is the bound of similar jobs, and for memory the larger of this bound and the prediction. It is NaN if
    no similar job was measured; the request is then kept.

    Parameters
    ----------
    found
        Upper bounds of similar jobs, by the key of `alike_key`.
    use
        Predicted upper quantile of use (n,), by target.
    own_runs
        Number of measured runs of each job's own group and role (n,).
    """
    bounds = [found.get(_key_of(job.role, job.request)) for job in jobs]
    own_runs = np.where([job.role == PARAMETER_SERVER for job in jobs], 0, own_runs)
    known = own_runs >= OWN_RUNS
    answers = {}
    for target, predicted in use.items():
        bound = np.array([np.nan if each is None else each.needs.get(target, np.nan) for each in bounds])
        alike = np.where(np.isnan(bound), np.nan, np.fmax(bound, predicted)) if target in HARD else bound
        answers[target] = np.where(known, predicted * ROOM[target], alike)
    groups = np.array([0 if each is None else each.groups for each in bounds], dtype=np.int64)
    return answers, np.where(known, own_runs, np.maximum(groups, own_runs)).astype(np.int64)


def _key_of(role: str, request: Request) -> Key:
    return alike_key(role, request.row())


FORMAT: Final = 1
"""Version of the bundle format; bundles of any other version are rejected."""

RUNTIME_TARGET: Final = "run_s"
"""Target of a run-time model. Its booster has one output per quantile of log run time."""

USAGE_TARGETS: Final = ("cpu_cores", "mem_gib", "gpus", "gpu_mem_gib")
"""Targets of a usage model. Each has a booster whose output is an upper quantile of log1p of the use per instance."""

MODEL_NAME: Final = re.compile(r"(runtime|usage)\.([A-Za-z0-9][A-Za-z0-9_-]{0,63})\.([A-Za-z0-9][A-Za-z0-9_-]{0,63})")
"""Pattern of model names, `<kind>.<trace>.<type>`. A name is also a folder name, so other characters are rejected."""

NameText = Annotated[str, Field(min_length=1, max_length=256)]
Resource = Literal["cpu_cores", "mem_gib", "gpus"]
Quantile = Annotated[float, Field(gt=0.0, lt=1.0)]


class Importance(BaseModel):
    """Permutation importance of one feature on held-out rows; `sign` is its rank correlation with its SHAP value."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    feature: NameText
    mean: float | None
    std: float | None
    repeats: int = Field(ge=0)
    sign: float | str | None


class ResourceImportance(BaseModel):
    """Permutation importance of one resource on held-out rows: its request and all features derived from it.

    `sign` is the rank correlation of a change of the request with the change of the predicted run time.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    resource: Resource
    mean: float | None
    std: float | None
    repeats: int = Field(ge=0)
    sign: float | None


class Card(BaseModel):
    """Metadata of a model: what it predicts, what it was trained on, and how it scored on held-out jobs.

    If `relative`, run times in the features and outputs are relative to the recent run time of similar jobs
    (`features.build`). `offsets` are added to the outputs in log units; their keys are `p50` and `p90`, or usage
    targets. `support` is the smallest and largest request in training, by resource. `metrics` are computed on held-out
    jobs, null where undefined. `important` are resources that are not shrunk because of their
    `resource_importances` (null in models that do not store them). `alike` are the upper bounds on the use of similar
    jobs (see `held`), null if not computed.
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
        return self

    @cached_property
    def alike_by_key(self) -> dict[Key, Alike] | None:
        """The upper bounds of similar jobs by key; None if not computed."""
        return None if self.alike is None else {each.key: each for each in self.alike}

    def to_json(self) -> bytes:
        """Return the card as JSON; equal cards give equal bytes."""
        return canonical_json(self.model_dump(mode="json"))


def card_from(values: Mapping[str, object]) -> Card:
    """Return a card from a mapping of plain values, validated.

    Raises
    ------
    BundleError
        A value is missing or invalid.
    """
    try:
        return Card.model_validate(values)
    except ValidationError as error:
        raise BundleError(f"card of {str(values.get('name'))[:80]}: {complaint(error)}") from error


def complaint(error: ValidationError) -> str:
    """Return the first error as `field: expected ...`, and the number of further errors."""
    first = error.errors(include_url=False, include_input=False)[0]
    field = ".".join(str(part)[:64] for part in first["loc"]) or "the whole"
    more = error.error_count() - 1
    return f"{field}: {first['msg'][:200]}" + (f" (and {more} more)" if more else "")


IMPORTANCES: Final = TypeAdapter(tuple[Importance, ...])


def canonical_json(value: object) -> bytes:
    """Return readable JSON in a unique form: sorted keys, indented by two spaces, a final newline; NaN is rejected.

    Examples
    --------
    >>> print(canonical_json({"b": 1, "a": None}).decode(), end="")
    {
      "a": null,
      "b": 1
    }
    """
    return (json.dumps(value, sort_keys=True, indent=2, allow_nan=False, ensure_ascii=False) + "\n").encode()
