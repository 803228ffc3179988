"""The model card: importances and bounds on peak use of similar jobs (`Alike`, `held`), validated when read.

No files and no boosters here; `modelserve.bundle.bundle` reads and writes the folder around them.
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

HARD: Final = frozenset({"mem_gib", "gpu_mem_gib"})
"""Targets where too little kills the job: the larger of bound and prediction is used."""

DIGITS: Final = 3
"""Significant digits of a request that are compared: 29.296875 GiB and 29.3 GiB are the same request."""

PARAMETER_SERVER: Final = "ps"
"""The role whose measurements are those of its workers, and so do not describe its own use."""

OWN_RUNS: Final = 20
"""Measured runs of a job's own group and role from which on the model's prediction is used."""

ROOM: Final[Mapping[str, float]] = {"cpu_cores": 1.1, "mem_gib": 1.5, "gpus": 1.0, "gpu_mem_gib": 1.3}
"""Factor on that prediction by target: larger for memory, where too little kills the job."""

Amount = Annotated[float, Field(ge=0.0, allow_inf_nan=False)]
Key = tuple[str, str, str, str]


class Alike(BaseModel):
    """Measured jobs of one role and one request: how many groups they were of, and what they need at most.

    `needs` are upper bounds per instance, by usage target; `groups` counts the groups of jobs behind them, since runs
    of one group say the same thing again. A resource the trace lacks is null.
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
        """The key shared by similar jobs."""
        return alike_key(self.role, (self.cpu_cores, self.mem_gib, self.gpus))


def alike_key(role: str, request: Sequence[float | None]) -> Key:
    """Return the key of similar jobs: their role, and their request to `DIGITS` significant digits.

    >>> alike_key("worker", (6.0, 29.296875, None))
    ('worker', '6', '29.3', 'nan')
    """
    cpu_cores, mem_gib, gpus = (f"{np.nan if value is None else value:.{DIGITS}g}" for value in request)
    return (role, cpu_cores, mem_gib, gpus)


def held(
    found: Mapping[Key, Alike], jobs: Sequence[Job], use: Mapping[str, FloatArray], own_runs: IntArray
) -> tuple[dict[str, FloatArray], IntArray]:
    """Return upper bounds on the use of jobs (n), and the number of measured runs or groups behind each.

    If a job's own group and role have enough measured runs, the bound is the prediction times `ROOM`. Otherwise it is
    the bound of similar jobs; for memory, the larger of that and the prediction. NaN if neither is known: the request
    is then kept.

    Parameters
    ----------
    found
        Bounds of similar jobs by key.
    use
        Predicted upper quantile of use by target.
    own_runs
        Measured runs of each job's own group and role.
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
"""Version of the folder format; readers reject all others."""

RUNTIME_TARGET: Final = "run_s"
"""The booster of a run-time model: one output per quantile of log run time."""

USAGE_TARGETS: Final = ("cpu_cores", "mem_gib", "gpus", "gpu_mem_gib")
"""The boosters of a usage model: one output each, an upper quantile of log1p of the use of one instance."""

MODEL_NAME: Final = re.compile(r"(runtime|usage)\.([A-Za-z0-9][A-Za-z0-9_-]{0,63})\.([A-Za-z0-9][A-Za-z0-9_-]{0,63})")
"""A registered name, `<kind>.<trace>.<type>`; it is also a folder's name, so no other characters are allowed."""

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
    """Permutation importance of one requestable resource on held-out rows, with all that derives from its request.

    `sign` is the rank correlation of a change of the request with the change of the predicted run time.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    resource: Resource
    mean: float | None
    std: float | None
    repeats: int = Field(ge=0)
    sign: float | None


class Card(BaseModel):
    """What a model is: what it answers, what it was trained on, how it was judged.

    `relative` says that run times are taken and answered against the reference of the like (`features.build`);
    `offsets` are added to the raw outputs in log units, by `p50`, `p90` or by usage target; `support` is the lowest
    and highest request seen in training; `metrics` are the held-out figures, null where one has no value. `alike` are
    the bounds that a usage model's answers are held by when requests are shrunk, null where they were not counted.
    `important` are the resources of `resource_importances` that Algorithm 1 leaves alone, null where not kept.
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
        """Write NaN as null: JSON has no NaN."""
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
        """The bounds of similar jobs by key; None if not computed."""
        return None if self.alike is None else {each.key: each for each in self.alike}

    def to_json(self) -> bytes:
        """Return the card as JSON; equal cards give equal bytes."""
        return canonical_json(self.model_dump(mode="json"))


def card_from(values: Mapping[str, object]) -> Card:
    """Make a card from plain values.

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
    """Write JSON for a person to read: sorted keys, two spaces, a final newline; no NaN.

    Examples
    --------
    >>> print(canonical_json({"b": 1, "a": None}).decode(), end="")
    {
      "a": null,
      "b": 1
    }
    """
    return (json.dumps(value, sort_keys=True, indent=2, allow_nan=False, ensure_ascii=False) + "\n").encode()
