"""Recipes: the space of a search, files written and read back, and every fault named."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from pipelines.errors import BadUsage
from pipelines.models.boosting import Boosting
from pipelines.models.recipes import (
    SPACE,
    Recipe,
    describe_changes,
    read_recipes,
    recipe_of,
    values_of,
    write_recipes,
)

NAME = "runtime.made.ctr"
OTHER = Recipe(half_life_days=None, boosting=Boosting(max_depth=3, learning_rate=0.3))


def test_the_default_recipe_is_within_the_search_space() -> None:
    usual = values_of(Recipe())

    assert recipe_of(usual) == Recipe()
    assert all(SPACE[name].low <= value <= SPACE[name].high for name, value in usual.items())
    assert all(isinstance(value, int) == isinstance(SPACE[name].low, int) for name, value in usual.items())
    assert describe_changes(Recipe()) == ""
    assert describe_changes(recipe_of({**usual, "max_depth": 3})) == "max_depth=3"


def test_a_recipe_is_read_back_as_written(tmp_path: Path) -> None:
    recipes = {NAME: OTHER, "runtime.made.nlp": Recipe()}

    write_recipes(tmp_path / "recipe.json", recipes)

    assert read_recipes(tmp_path / "recipe.json", "made") == recipes
    assert read_recipes(None, "made") == {}


Body = dict[str, Any]


def changed(place: str, value: object) -> Callable[[Body], None]:
    def change(body: Body) -> None:
        *path, last = place.split("/")
        for each in path:
            body = body[each]
        body[last] = value

    return change


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (changed("boosting/max_depth", 99), r"boosting\.max_depth: found '99'; expected at most 16"),
        (changed("boosting/max_depth", "6"), r"boosting\.max_depth: found '6'; expected a whole number"),
        (changed("boosting/rounds", 0), r"boosting\.rounds: found '0'"),
        (changed("boosting/learning_rate", float("nan")), r"boosting\.learning_rate: found 'nan'"),
        (changed("boosting/reg_lambda", float("inf")), r"boosting\.reg_lambda: found 'inf'"),
        (changed("boosting/eta", 0.1), r"boosting\.eta: found '0\.1'; no such field"),
        (changed("depth", 3), r"depth: found '3'; no such field"),
        (changed("half_life_days", -1.0), r"half_life_days: found '-1\.0'"),
        (changed("boosting", []), r"boosting: found '\[\]'; expected an object"),
    ],
)
def test_a_fault_is_named_with_its_place_and_value(
    tmp_path: Path, change: Callable[[Body], None], message: str
) -> None:
    path = tmp_path / "recipe.json"
    write_recipes(path, {NAME: Recipe()})
    content = json.loads(path.read_text())
    change(content["models"][NAME])
    path.write_text(json.dumps(content))

    with pytest.raises(BadUsage, match=rf"recipe\.json: models\.runtime\.made\.ctr\.{message}"):
        read_recipes(path, "made")


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"\xff", "the file: not valid JSON"),
        (b"{", "the file: not valid JSON"),
        (b"[]", "the file"),
        (b'{"format": 2, "models": {}}', "format: found '2'"),
        (b'{"format": 1, "models": {}}', "models"),
        (b'{"format": 1, "models": {"../x": {}}}', r"models\.\.\./x"),
    ],
)
def test_a_file_of_something_else_is_refused(tmp_path: Path, content: bytes, message: str) -> None:
    (tmp_path / "recipe.json").write_bytes(content)

    with pytest.raises(BadUsage, match=rf"recipe\.json: {message}.*; write it with `taut tune`"):
        read_recipes(tmp_path / "recipe.json", "made")


def test_recipes_of_another_trace_are_refused(tmp_path: Path) -> None:
    write_recipes(tmp_path / "recipe.json", {NAME: Recipe()})

    with pytest.raises(BadUsage, match=r"found recipes of runtime\.made\.ctr; expected one of runtime\.philly\.<type>"):
        read_recipes(tmp_path / "recipe.json", "philly")
    with pytest.raises(BadUsage, match=r"absent\.json: found no file that can be read \(No such file"):
        read_recipes(tmp_path / "absent.json", "made")
