"""Settings of the service, read from the environment variables `TAUT_SERVE_*` and checked.

docs/serving.md lists them.
"""

import ipaddress
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, SecretStr, field_validator, model_validator
from pydantic_settings import BaseSettings, SettingsConfigDict

from modelserve.callers import Token
from modelserve.contract.fields import RequestRow

__all__ = ["PREFIX", "ServeSettings", "TypePolicy"]

PREFIX = "TAUT_SERVE_"

Seconds = Annotated[float, Field(gt=0.0, le=86_400.0)]
Margin = Annotated[float, Field(ge=0.0, le=10.0)]


class TypePolicy(BaseModel):
    """The shrink policy of one task type; a value of None means the default of `ShrinkPolicy`."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    theta: Annotated[float, Field(gt=0.0, le=1.0)] | None = None
    alpha: Annotated[float, Field(ge=0.0)] | None = None
    guard: Literal["usage", "none"] | None = None
    min_runs: Annotated[int, Field(ge=0)] | None = None
    sure_runs: Annotated[int, Field(ge=0)] | None = None
    minimum_change: Annotated[float, Field(ge=0.0, lt=1.0)] | None = None
    cpu_margin: Margin | None = None
    mem_margin: Margin | None = None
    gpu_margin: Margin | None = None
    gpu_mem_margin: Margin | None = None
    minimums: RequestRow = RequestRow()

    @model_validator(mode="after")
    def _sure_of_what_is_trusted(self) -> "TypePolicy":
        if self.sure_runs is None:
            return self
        from scheduler_core.shrink import ShrinkPolicy  # loads numpy, which the supervisor does not need

        least = ShrinkPolicy().min_runs if self.min_runs is None else self.min_runs
        if self.sure_runs < least:
            raise ValueError(f"sure_runs={self.sure_runs}, expected at least min_runs={least}")
        return self

    def parameters(self) -> dict[str, Any]:  # Any: numbers or text, checked by the fields
        """Return the values that are not None, by the field names of `ShrinkPolicy`."""
        values = {name: getattr(self, name) for name in type(self).model_fields if name not in ("alpha", "minimums")}
        return {name: value for name, value in {**values, "alpha0": self.alpha}.items() if value is not None}

    @field_validator("alpha")
    @classmethod
    def _leaves_candidates(cls, alpha: float | None) -> float | None:
        from scheduler_core.shrink import MAX_ALPHA  # loads numpy, which the supervisor does not need

        if alpha is not None and not alpha <= MAX_ALPHA:
            raise ValueError(f"found {alpha:g}, expected at most {MAX_ALPHA:g}")
        return alpha


class ServeSettings(BaseSettings):
    """All settings of the service, from the variables `TAUT_SERVE_*`.

    An empty variable counts as absent. Mappings and lists are given as JSON.
    """

    model_config = SettingsConfigDict(
        env_prefix=PREFIX, env_ignore_empty=True, frozen=True, extra="forbid", env_nested_delimiter=None
    )

    host: str = Field(default="127.0.0.1", description="address to listen on")
    port: int = Field(default=8080, ge=0, le=65_535, description="port to listen on; 0 takes a free one")
    workers: int = Field(default=1, ge=1, le=256, description="worker processes")
    bundles: Path = Field(default=Path("data/bundles"), description="folder of the mirrored bundles")
    tracking_uri: str | None = Field(
        default=None, description="registry to mirror; none: serve the models in the folder, without mirroring"
    )
    store: str = Field(
        default="sqlite:///data/serve.db", description="URL of the store: sqlite:///file or postgresql+psycopg://..."
    )
    trace: str | None = Field(default=None, description="trace of jobs and calls that name none")
    sites_policy: Path | None = Field(
        default=None, description="policy of /v1/route, from taut sites train; none: greedy"
    )

    tokens: tuple[Token, ...] = Field(default=(), description="bearer tokens, as JSON; none only on loopback")
    tls_certificate: Path | None = Field(default=None, description="PEM file of the certificate chain")
    tls_key: Path | None = Field(default=None, description="PEM file of the private key")
    tls_key_password: SecretStr | None = Field(default=None, description="password of the private key")

    body_limit_bytes: int = Field(default=16 * 2**20, ge=1024, description="largest request body")
    rows_limit: int = Field(default=10_000, ge=1, le=10_000, description="most jobs in one call")
    answer_limit_s: Seconds = Field(default=30.0, description="longest an answer may take; then 503")
    body_read_limit_s: Seconds = Field(default=10.0, description="longest a body may take to arrive; then 408")
    header_read_limit_s: Seconds = Field(default=10.0, description="longest wait of a connection for a request")
    connections_limit: int = Field(default=1000, ge=1, description="open connections of one worker; then 503")
    busy_limit: int = Field(default=64, ge=1, description="large calls running or waiting in one worker; then 503")
    calls_per_s: float | None = Field(default=None, gt=0.0, description="calls a second of one token; then 429")
    drain_s: float = Field(
        default=2.0, ge=0.0, le=600.0, description="how long /readyz reports draining before the end"
    )
    stop_limit_s: Seconds = Field(default=20.0, description="longest wait for running calls at the end")

    reload_every_s: Seconds = Field(default=1.0, description="how often a worker looks for new models in the folder")
    mirror_every_s: Seconds = Field(default=5.0, description="how often the registry's champions are read")
    feedback_every_s: Seconds = Field(default=0.5, description="how often a worker reads others' feedback")
    answers_kept: int = Field(default=200_000, ge=0, description="answers kept in the log; 0 logs none")
    answers_kept_bytes: int = Field(
        default=2 * 2**30, ge=2**20, description="largest total size of the answers kept; the oldest are deleted first"
    )

    mode: Literal["observe", "enforce"] = Field(default="observe", description="mode if none is set")
    types: dict[str, TypePolicy] = Field(default_factory=dict, description="policy by task type, as JSON")
    kill_limit_frac: float = Field(
        default=0.01,
        ge=0.0,
        le=1.0,
        description="share of shrunk jobs that came to harm above which a group, user or type is braked",
    )
    kill_window: int = Field(default=200, ge=1, description="newest shrunk jobs in which harm is counted")
    kill_least: int = Field(
        default=3, ge=1, description="fewest harmed jobs, groups and users that brake a group, a user and a type"
    )
    drift_window: int = Field(default=500, ge=20, description="finished jobs of a model over which drift is judged")
    log_format: Literal["json", "console"] = Field(default="json", description="form of the log lines on stderr")

    @field_validator("tracking_uri", "trace")
    @classmethod
    def _empty_is_absent(cls, text: str | None) -> str | None:
        return text or None

    @model_validator(mode="after")
    def _check_together(self) -> "ServeSettings":
        if not self.tokens and not is_loopback(self.host):
            raise ValueError(
                f"host {self.host[:60]!r} is not a loopback address and no token is set; "
                f"set {PREFIX}TOKENS (see `taut token`), or listen on 127.0.0.1"
            )
        if (self.tls_certificate is None) != (self.tls_key is None):
            raise ValueError("tls_certificate and tls_key: found one, expected both or neither")
        names = [token.name for token in self.tokens]
        if len(set(names)) != len(names):
            raise ValueError("tokens: found a name twice, expected different names")
        return self


def is_loopback(host: str) -> bool:
    """Return whether a server on this address can be reached only from the same machine.

    >>> is_loopback("127.0.0.1"), is_loopback("localhost"), is_loopback("10.0.0.1")
    (True, True, False)
    """
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False
