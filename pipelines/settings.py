"""Settings of the `taut` command from the environment: folders, the default trace, seed and threads.

Options on the command line override settings. Called by `pipelines.cli` and `taut`.
"""

import os
from pathlib import Path
from typing import Annotated

from pydantic import AliasChoices, Field, ValidationError
from pydantic_settings import BaseSettings, SettingsConfigDict

from modelserve.wrong_values import fault_of
from pipelines.errors import BadUsage

__all__ = ["load_settings", "usable_cpus"]

PREFIX = "TAUT_"


def usable_cpus() -> int:
    """Return the number of processors that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


class Settings(BaseSettings):
    """Values of the environment variables `TAUT_*` and two of MLflow; an empty variable counts as unset."""

    model_config = SettingsConfigDict(
        env_prefix=PREFIX, env_ignore_empty=True, frozen=True, extra="forbid", populate_by_name=True
    )

    lake: Path = Field(default=Path("data/lake"), description="folder of the lake")
    bundles: Path | None = Field(default=None, description="folder of cached models; next to the lake if unset")
    traces: Path | None = Field(default=None, description="folder of published files, one subfolder for each trace")
    energy: Path = Field(
        default=Path("../shared/energy"), description="folder of measured watts, speeds, grid carbon and prices"
    )
    trace: Annotated[str, Field(min_length=1)] | None = Field(
        default=None, description="default trace; needed if the lake holds several"
    )
    seed: int = Field(default=0, ge=0, description="seed of all random numbers")
    threads: int = Field(default_factory=usable_cpus, ge=1, description="threads for training and ingest")
    tracking_uri: str | None = Field(
        default=None,
        validation_alias=AliasChoices("MLFLOW_TRACKING_URI"),
        description="MLflow tracking URI of the models; SQLite next to the lake if unset",
    )
    artifact_root: str | None = Field(
        default=None,
        validation_alias=AliasChoices("MLFLOW_DEFAULT_ARTIFACT_ROOT"),
        description="where a new registry in a database keeps files of models, such as s3://BUCKET/PREFIX",
    )

    def registry(self, lake: Path) -> str:
        """Return the URI of the model registry: as set, else SQLite next to the lake."""
        return self.tracking_uri or f"sqlite:///{lake.absolute().parent / 'mlflow.db'}"


def load_settings() -> Settings:
    """Read the settings from the environment.

    Raises
    ------
    BadUsage
        If a variable has an invalid value; the message names all invalid variables.
    """
    try:
        return Settings()
    except ValidationError as error:
        faults = [
            f"{_variable(str(fault['loc'][0]))} is {str(fault['input'])[:40]!r}: {fault_of(fault)}"
            for fault in error.errors()
        ]
        raise BadUsage(f"invalid settings: {'; '.join(faults)}") from error


def _variable(field: str) -> str:
    return f"{PREFIX}{field.upper()}" if field in Settings.model_fields else field
