"""Types of the fields that requests and responses share, and the base class of every response.

Light, so that `modelserve.settings` loads quickly.
"""

from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field

from modelserve.wrong_values import WITHOUT_NUL

__all__ = ["Answer", "Guard", "Mode", "Part", "RequestRow", "Text"]

Mode = Literal["observe", "enforce"]
Kind = Literal["runtime", "usage"]
Guard = Literal["usage", "none"]
Finite = Annotated[float, Field(allow_inf_nan=False)]
StrictFinite = Annotated[float, Field(allow_inf_nan=False, strict=True)]
"""A finite JSON number; text and booleans are rejected."""


Text = Annotated[str, Field(min_length=1, max_length=256, pattern=WITHOUT_NUL)]
Amount = Annotated[float, Field(ge=0.0, le=1e6, allow_inf_nan=False)]
"""An amount of one resource, in cores, GiB or GPUs."""


class Part(BaseModel):
    """Base class of every call and of its parts; unknown fields are refused."""

    model_config = ConfigDict(extra="forbid", frozen=True)


class Answer(BaseModel):
    """Base class of every response; unknown fields are ignored, since a newer service may add some."""

    model_config = ConfigDict(extra="ignore", frozen=True)


class RequestRow(Part):
    """Amounts for one instance: a request, or minimums of a recommendation; null or absent: none."""

    cpu_cores: Amount | None = None
    mem_gib: Amount | None = None
    gpus: Amount | None = None
