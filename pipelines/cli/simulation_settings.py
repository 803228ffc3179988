"""Settings of `taut simulate`, from its options and a TOML file."""

import math
import tomllib
from collections.abc import Iterable, Mapping
from datetime import datetime
from pathlib import Path
from typing import Annotated, Any, Final, Literal, Self

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, ValidationError, model_validator

from pipelines.errors import BadUsage
from pipelines.simulation.engine.slowdown import SLOWDOWN_MODELS, USUAL_MODELS
from pipelines.simulation.shared.inputs import SHARED
from pipelines.simulation.shared.variation import VARIATIONS
from scheduler_core.placement import PLACEMENTS
from scheduler_core.queueing import QUEUE_POLICIES


def among(names: Iterable[str]) -> AfterValidator:
    """Return a check that a text is one of the names."""
    known = tuple(names)

    def checked(value: str) -> str:
        if value in known:
            return value
        raise ValueError(f"found {value[:80]!r}, expected one of {', '.join(known)}")

    return AfterValidator(checked)


PREDICTORS: Final = ("champion", "oracle", "constant", "none")
"""Predictors in order: the champion models, each job's recorded run, the pool's median run time, and none."""

Positive = Annotated[float, Field(gt=0.0, allow_inf_nan=False)]
AtLeast0 = Annotated[float, Field(ge=0.0)]


OPTIONS: Final = {
    "arrivals": "drawn",
    "rate": "70",
    "hours": "12; recorded: until all jobs ended",
    "replications": "1",
    "cluster_from": "paper; recorded: machines",
    "policy": "fifo",
    "placement": "best_fit",
    "predictor": "champion; recorded: none unless something uses predictions",
    "truth": "all but shared",
    "seed": "0",
}
"""Settings that are options of the command too, and their values if neither option nor file gives one."""


class Settings(BaseModel):
    """One simulation; an absent key has the default shown here or in the help of its option."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    # jobs
    cluster: str | None = None
    vc: str | None = None
    since: datetime | None = None
    until: datetime | None = None
    # load
    arrivals: Literal["drawn", "instances", "recorded"] = Field(
        "drawn",
        description="drawn: measured jobs (Poisson); instances: one instance of each; recorded: the trace's own",
    )
    rate: float | None = Field(None, ge=0.01, le=1e6, description="drawn arrivals per hour")
    mix: dict[str, Annotated[float, Field(ge=0.0, allow_inf_nan=False)]] = {}
    """Weights of task types, as {ctr = 65}; the trace's own if empty."""
    replications: int | None = Field(None, ge=1, description="runs with different seeds; shows means")
    hours: float | None = Field(None, ge=0.1, le=100_000.0, description="length")
    warm_up_h: AtLeast0 = 0.0
    # rules
    cluster_from: str | None = Field(
        None,
        min_length=1,
        description="the cluster: `paper`, `machines` (the trace's own table), or a TOML file of machines",
    )
    match_gpu_type: bool = False
    policy: Annotated[str, among(QUEUE_POLICIES)] = Field("fifo", description="queue order")
    placement: Annotated[str, among(PLACEMENTS)] = Field(
        "best_fit", description="how machines are chosen for a gang's instances"
    )
    sharing: Literal["pooled", "devices"] | None = None
    aging: AtLeast0 = 0.0
    overtakes: Annotated[int, Field(ge=0)] | None = None
    backfill: Literal["none", "easy"] = "none"
    preempt: bool | None = None
    restart_cost_s: AtLeast0 = 0.0
    quantum_s: Annotated[float, Field(ge=1.0)] = 600.0
    # advice: Algorithm 1 and slowdown models
    predictor: Annotated[str, among(PREDICTORS)] | None = Field(
        None, description="predictor: `champion`, `oracle`, `constant` or `none`"
    )
    theta: Annotated[float, Field(ge=1e-4, le=1.0)] = 0.05
    alpha0: Annotated[float, Field(ge=0.0, le=0.99)] | None = None
    sure_runs: Annotated[int, Field(ge=0)] | None = None
    guard: tuple[Literal["usage", "none"], ...] = ("usage",)
    truth: tuple[Annotated[str, among((*SLOWDOWN_MODELS, SHARED))], ...] = Field(
        USUAL_MODELS, description="slowdown model of shrunk jobs (may be repeated)"
    )
    # reclaiming, under the slowdown model `shared`
    z: Annotated[float, Field(ge=0.0, le=10.0)] | None = None
    """Standard deviations of the sum of use that stay free on a machine."""
    probation_min: Annotated[float, Field(ge=0.0, le=10_000.0)] | None = None
    variation: Annotated[str, among(VARIATIONS)] | None = None
    # energy
    grid: Path | None = None
    zone: str | None = None
    grid_start: str | None = None
    power: Path | None = None
    pue: Annotated[float, Field(ge=1.0, le=10.0)] | None = None

    seed: int = Field(0, ge=0, description="seed of all random numbers")

    @property
    def recorded(self) -> bool:
        """Whether arrivals are the trace's own."""
        return self.arrivals == "recorded"

    @model_validator(mode="after")
    def _settings_agree(self) -> Self:
        needs: dict[str, tuple[object, bool]] = {
            "rate, mix or replications with arrivals = recorded": (
                self.rate or self.mix or self.replications,
                not self.recorded,
            ),
            "z, probation_min or variation without truth = shared": (
                (self.z, self.probation_min, self.variation) != (None, None, None),
                SHARED in self.truth,
            ),
            "zone, grid_start or pue without grid": (
                (self.zone, self.grid_start, self.pue) != (None, None, None),
                self.grid is not None,
            ),
            "a mix without a weight above 0": (bool(self.mix) and not math.fsum(self.mix.values()), False),
        }
        for what, (given, allowed) in needs.items():
            if given and not allowed:
                raise ValueError(f"found {what}")
        return self


def read_settings(file: Path | None, options: Mapping[str, object]) -> Settings:
    """Read the settings of a TOML file; options override its keys, and an option that is None was not given."""
    keys: dict[str, Any] = {}
    if file is not None:
        try:
            keys = tomllib.loads(file.read_text(encoding="utf-8"))
        except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
            reason = error.strerror if isinstance(error, OSError) else error
            raise BadUsage(f"--settings {file}: {reason}; expected TOML such as: warm_up_h = 2") from error
    try:
        return Settings.model_validate(
            {**keys, **{name: value for name, value in options.items() if value is not None}}
        )
    except ValidationError as error:
        first = error.errors()[0]
        where = ".".join(part for part in first["loc"] if isinstance(part, str))
        raise BadUsage(f"simulate: {where}{': ' if where else ''}{first['msg']}") from error
