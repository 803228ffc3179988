"""Files of recipes: which recipe each run-time model is trained with, as JSON, validated when read.

Called by `taut tune`, which writes them, and by `taut train` and `taut retrain`, which read them.
"""

from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Final, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from modelserve.bundle.card import canonical_json
from modelserve.wrong_values import fault_of
from pipelines.errors import BadUsage
from pipelines.models.boosting import Boosting
from pipelines.models.fitted import Recipe

__all__ = ["read_recipes", "write_recipes"]

SHOWN: Final = 3
"""Maximum number of faults listed in an error message."""

Name = Annotated[str, Field(pattern=r"^runtime\.[A-Za-z0-9][A-Za-z0-9_-]{0,63}\.[A-Za-z0-9][A-Za-z0-9_-]{0,63}$")]
Share = Annotated[float, Field(gt=0.0, le=1.0)]


class _Strict(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True, strict=True, allow_inf_nan=False)


class BoostingBody(_Strict):
    """Parameters of the trees as in `Boosting`; the bounds exclude what no training could use."""

    rounds: int = Field(ge=1, le=5000)
    patience: int = Field(ge=1, le=5000)
    learning_rate: Share
    num_parallel_tree: int = Field(ge=1, le=64)
    max_depth: int = Field(ge=1, le=16)
    min_child_weight: float = Field(ge=0.0, le=1e6)
    subsample: Share
    colsample_bytree: Share
    reg_lambda: float = Field(ge=0.0, le=1e6)
    max_bin: int = Field(ge=2, le=4096)


class RecipeBody(_Strict):
    """The choices of a recipe that a file can set; the others are those of the default recipe."""

    censored: Literal["weights", "absent"]
    half_life_days: float | None = Field(gt=0.0, le=36_500.0)
    completed_only: bool
    boosting: BoostingBody


class RecipeFile(_Strict):
    """The content of a file: recipes by the registered name of the model."""

    format: Literal[1]
    models: dict[Name, RecipeBody] = Field(min_length=1)


def write_recipes(path: Path, recipes: Mapping[str, Recipe]) -> None:
    """Write recipes by the name of their models; equal recipes give equal bytes."""
    models = {name: {key: asdict(recipe)[key] for key in RecipeBody.model_fields} for name, recipe in recipes.items()}
    path.write_bytes(canonical_json({"format": 1, "models": models}))


def read_recipes(path: Path | None, trace: str) -> dict[str, Recipe]:
    """Read recipes by the name of their models; without a file, there are none.

    Raises
    ------
    BadUsage
        The file cannot be read, or a value is missing, unknown, not finite or out of bounds, or no recipe is for a
        model of the trace.
    """
    if path is None:
        return {}
    try:
        found = RecipeFile.model_validate_json(path.read_bytes())
    except OSError as error:
        raise BadUsage(
            f"{path}: found no file that can be read ({error.strerror}); expected one of `taut tune`"
        ) from error
    except ValidationError as error:
        faults = [_fault(each["loc"], fault_of(each), each["input"]) for each in error.errors(include_url=False)]
        more = f" (and {len(faults) - SHOWN} more)" if len(faults) > SHOWN else ""
        raise BadUsage(f"{path}: {'; '.join(faults[:SHOWN])}{more}; write it with `taut tune`") from error
    if not any(name.startswith(f"runtime.{trace}.") for name in found.models):
        raise BadUsage(
            f"{path}: found recipes of {', '.join(found.models)[:200]}; expected one of runtime.{trace}.<type>"
        )
    return {
        name: Recipe(
            censored=body.censored,
            half_life_days=body.half_life_days,
            completed_only=body.completed_only,
            boosting=Boosting(**body.boosting.model_dump()),
        )
        for name, body in found.models.items()
    }


def _fault(place: tuple[int | str, ...], message: str, found: object) -> str:
    where = ".".join(map(str, place)) or "the file"
    shown = "" if isinstance(found, dict | bytes) else f"found {str(found)[:40]!r}; "
    return f"{where[:120]}: {shown}{message[:200]}"
