"""Wrong bodies of every call: no phrase of the library that checks them is sent, and each fault names its field."""

import json
import re
from collections.abc import Iterator
from typing import Any

import pytest
from pydantic import BaseModel, ValidationError

from modelserve.api.app import OPERATIONS
from modelserve.api.problems import invalid_body
from modelserve.bundle.card import complaint

FOREIGN = re.compile(
    r"\b(Input|Value|String|List|Tuple|Data) should|Field required|not permitted|Value error|"
    r"\bvalid (integer|tuple|list|string|dictionary|boolean|number)\b|unable to parse|instance of|Invalid JSON|pydantic"
)
WRONG: tuple[Any, ...] = (
    None,
    True,
    "text",
    "",
    "x" * 300,
    -1,
    1.5,
    10**30,
    1e300,
    [],
    [1],
    {},
    {"no": 1},
    "2024-13-99",
)
BODIES = sorted({each.body for each in OPERATIONS if each.body is not None}, key=lambda body: body.__name__)


def wrong_bodies(body: type[BaseModel]) -> Iterator[object]:
    """Yield bodies with one wrong value at each place of the model's schema, and bodies that are no object."""
    schema = body.model_json_schema()
    yield from WRONG
    for path in places(schema, schema.get("$defs", {}), depth=4):
        for value in WRONG:
            whole: Any = value
            for part in reversed(path):
                whole = [whole] if part == 0 else {part: whole}
            yield whole


def places(schema: dict[str, Any], defs: dict[str, Any], depth: int) -> Iterator[tuple[str | int, ...]]:
    """Yield the paths of a schema's fields; 0 is any item of a list."""
    schema = defs[schema["$ref"].rpartition("/")[2]] if "$ref" in schema else schema
    if not depth:
        return
    for each in (*schema.get("anyOf", ()), *schema.get("oneOf", ())):
        yield from places(each, defs, depth)
    for name, inner in schema.get("properties", {}).items():
        yield (name,)
        yield from ((name, *rest) for rest in places(inner, defs, depth - 1))
    if isinstance(items := schema.get("items"), dict):
        yield (0,)
        yield from ((0, *rest) for rest in places(items, defs, depth - 1))


@pytest.mark.parametrize("body", BODIES, ids=lambda body: body.__name__)
def test_faults_of_wrong_bodies_are_told_in_plain_words(body: type[BaseModel]) -> None:
    refused, types = 0, set()
    for wrong in wrong_bodies(body):
        try:
            body.model_validate_json(json.dumps(wrong), strict=True)
        except ValidationError as error:
            refusal = invalid_body(error)
            texts = [str(refusal), complaint(error), *(each["expected"] for each in refusal.faults)]
            assert not [text for text in texts if FOREIGN.search(text)]
            assert all(each["field"] and each["type"] for each in refusal.faults)
            assert str(refusal).startswith(f"{refusal.faults[0]['field']}: ")
            types |= {each["type"] for each in refusal.faults}
            refused += 1

    assert refused > len(WRONG)
    assert "extra_forbidden" in types
    assert "missing" in types or not any(field.is_required() for field in body.model_fields.values())
