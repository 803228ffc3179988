"""Recipes of run-time models: their values, the space that a search draws from, and files of them as JSON."""

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Annotated, Final, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError, with_config

from modelserve.bundle.card import canonical_json
from modelserve.wrong_values import fault_of
from pipelines.errors import BadUsage
from pipelines.models.boosting import STRICT, Boosting

__all__ = ["Recipe", "read_recipes", "write_recipes"]


@with_config(STRICT)
@dataclass(frozen=True, slots=True, kw_only=True)
class Recipe:
    """Choices for training a run-time model: the parameters of its trees, and how fast old rows lose weight.

    `half_life_days` is the half-life of a row's weight, by its age at the last submission; None weighs all rows
    equally.
    """

    boosting: Boosting = field(default_factory=Boosting)
    half_life_days: Annotated[float, Field(gt=0.0, le=36_500.0)] | None = 30.0


Value = float | int


@dataclass(frozen=True, slots=True, kw_only=True)
class Span:
    """The range of one parameter in the search: its ends, and whether it is searched by its logarithm."""

    low: Value
    high: Value
    log: bool = False


SPACE: Final[Mapping[str, Span]] = {
    "rounds": Span(low=20, high=200, log=True),
    "learning_rate": Span(low=0.02, high=0.3, log=True),
    "num_parallel_tree": Span(low=1, high=4),
    "max_depth": Span(low=3, high=8),
    "min_child_weight": Span(low=1.0, high=500.0, log=True),
    "subsample": Span(low=0.4, high=1.0),
    "colsample_bytree": Span(low=0.15, high=1.0),
    "reg_lambda": Span(low=0.1, high=50.0, log=True),
    "max_bin": Span(low=32, high=256, log=True),
    "half_life_days": Span(low=3.0, high=365.0, log=True),
}
"""The search space: `half_life_days` is of the recipe, the others are of its trees.

Its upper ends keep a model within about ten times the default's nodes, so that serving stays fast.
"""


def recipe_of(values: Mapping[str, Value]) -> Recipe:
    """Return the default recipe with the values of a trial."""
    grown = {name: value for name, value in values.items() if name != "half_life_days"}
    return Recipe(half_life_days=values["half_life_days"], boosting=replace(Boosting(), **grown))  # type: ignore[arg-type]  # SPACE names them


def values_of(recipe: Recipe) -> dict[str, Value]:
    """Return a recipe's values of the hyper-parameters that a search varies, by name."""
    every = {"half_life_days": recipe.half_life_days, **asdict(recipe.boosting)}
    return {name: every[name] for name in SPACE}


def describe_changes(recipe: Recipe) -> str:
    """Return the searched values of a recipe that differ from the default, as text."""
    usual = values_of(Recipe())
    changed = {name: value for name, value in values_of(recipe).items() if value != usual[name]}
    return " ".join(f"{name}={value:.3g}" for name, value in changed.items())


SHOWN: Final = 3
"""Maximum number of faults listed in an error message."""

Name = Annotated[str, Field(pattern=r"^runtime\.[A-Za-z0-9][A-Za-z0-9_-]{0,63}\.[A-Za-z0-9][A-Za-z0-9_-]{0,63}$")]


class RecipeFile(BaseModel):
    """The content of a file: recipes by the registered name of the model."""

    model_config = ConfigDict(**STRICT, frozen=True)
    format: Literal[1]
    models: dict[Name, Recipe] = Field(min_length=1)


def write_recipes(path: Path, recipes: Mapping[str, Recipe]) -> None:
    """Write recipes by the name of their models; equal recipes give equal bytes."""
    models = {name: asdict(recipe) for name, recipe in recipes.items()}
    path.write_bytes(canonical_json({"format": 1, "models": models}))


def read_recipes(path: Path | None, trace: str) -> dict[str, Recipe]:
    """Read recipes by the name of their models; without a file, there are none. An absent value is the default's."""
    if path is None:
        return {}
    try:
        content = RecipeFile.model_validate_json(path.read_bytes())
    except OSError as error:
        raise BadUsage(
            f"{path}: found no file that can be read ({error.strerror}); expected one of `taut tune`"
        ) from error
    except ValidationError as error:
        faults = [_fault(each["loc"], fault_of(each), each["input"]) for each in error.errors(include_url=False)]
        more = f" (and {len(faults) - SHOWN} more)" if len(faults) > SHOWN else ""
        raise BadUsage(f"{path}: {'; '.join(faults[:SHOWN])}{more}; write it with `taut tune`") from error
    if not any(name.startswith(f"runtime.{trace}.") for name in content.models):
        raise BadUsage(
            f"{path}: found recipes of {', '.join(content.models)[:200]}; expected one of runtime.{trace}.<type>"
        )
    return content.models


def _fault(place: tuple[int | str, ...], message: str, found: object) -> str:
    where = ".".join(map(str, place)) or "the file"
    shown = "" if isinstance(found, dict | bytes) else f"found {str(found)[:40]!r}; "
    return f"{where[:120]}: {shown}{message[:200]}"
