"""What every answer is: a frozen model that passes over what it does not know.

No answer stands here. Called by the files beside.
"""

from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field

Mode = Literal["observe", "enforce"]
Alias = Literal["champion", "challenger"]
Kind = Literal["runtime", "usage"]
Finite = Annotated[float, Field(allow_inf_nan=False)]


class Frozen(BaseModel):
    """Base of every answer: frozen, and deaf to what a newer service says beyond it."""

    model_config = ConfigDict(extra="ignore", frozen=True)
