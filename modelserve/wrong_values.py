"""What a field should have held, in plain words, from the errors of pydantic.

Every message about an invalid body, file or setting takes its words from here. Called where such errors are caught.
"""

import re
from collections.abc import Mapping
from typing import Final

from pydantic_core import ErrorDetails

__all__ = ["fault_of", "found_and_expected"]

_MOMENT: Final = "a date and time with a time zone, like 2024-01-31T12:00:00Z"
_LIST: Final = "a list"
_OBJECT: Final = "an object with named fields"
_WHOLE: Final = "a whole number"
EXPECTED: Final[Mapping[str, str]] = {
    "extra_forbidden": "no such field",
    "unexpected_keyword_argument": "no such field",
    "none_required": "null",
    "bool_type": "true or false",
    "bool_parsing": "true or false",
    "int_type": _WHOLE,
    "int_parsing": _WHOLE,
    "int_parsing_size": "a smaller whole number",
    "int_from_float": _WHOLE,
    "float_type": "a number",
    "float_parsing": "a number",
    "finite_number": "a finite number",
    "greater_than": "more than {gt}",
    "greater_than_equal": "at least {ge}",
    "less_than": "less than {lt}",
    "less_than_equal": "at most {le}",
    "multiple_of": "a multiple of {multiple_of}",
    "string_type": "text",
    "string_sub_type": "text",
    "string_unicode": "valid Unicode text",
    "string_too_short": "text of at least {min_length} characters",
    "string_too_long": "text of at most {max_length} characters",
    "string_pattern_mismatch": "text that matches {pattern}",
    "literal_error": "{expected}",
    "enum": "{expected}",
    "union_tag_invalid": "one of {expected_tags}",
    "too_short": "at least {min_length} items",
    "too_long": "at most {max_length} items",
    "list_type": _LIST,
    "tuple_type": _LIST,
    "set_type": _LIST,
    "frozen_set_type": _LIST,
    "iterable_type": _LIST,
    "dict_type": _OBJECT,
    "mapping_type": _OBJECT,
    "model_type": _OBJECT,
    "model_attributes_type": _OBJECT,
    "dataclass_type": _OBJECT,
    "datetime_type": _MOMENT,
    "datetime_parsing": _MOMENT,
    "datetime_from_date_parsing": _MOMENT,
    "datetime_object_invalid": _MOMENT,
    "timezone_naive": _MOMENT,
    "timezone_aware": _MOMENT,
    "timezone_offset": _MOMENT,
    "date_type": "a date, like 2024-01-31",
    "date_parsing": "a date, like 2024-01-31",
    "date_from_datetime_parsing": "a date, like 2024-01-31",
    "json_invalid": "valid JSON",
    "path_type": "a path",
}
"""What was expected, by pydantic's type of error; the error's context fills the braces."""

_LEADING: Final = re.compile(
    r"^(?:Value error, |(?:Input|Value|String|URL|List|Tuple|Data) should (?:be |have )?)", re.I
)

_SENTENCE: Final = re.compile(r"(?:(?:found )?(?P<found>.+)[,;] )?expected (?P<expected>.+)", re.DOTALL)
"""A message of this project: `found X, expected Y`, either part alone, or a statement in place of `found X`."""


def found_and_expected(message: str) -> tuple[str | None, str]:
    """Split a message into what was found, if it names that, and what was expected.

    >>> found_and_expected("found 3 rows, expected at most 2")
    ('3 rows', 'at most 2')
    >>> found_and_expected("found none, expected a trace")
    (None, 'a trace')
    """
    parts = _SENTENCE.fullmatch(message)
    if parts is None:
        return None, message
    found = parts["found"]
    return (None if found is None or found.partition(" ")[0] in ("none", "no", "neither") else found), parts["expected"]


def _message(fault: ErrorDetails) -> str:
    """Return what was expected, or the whole message of a validator of this project."""
    words = EXPECTED.get(fault["type"])
    if words is None:
        return _LEADING.sub("", fault["msg"])
    context = {
        name: f"{value:.15g}" if isinstance(value, float) else value for name, value in fault.get("ctx", {}).items()
    }
    text = words.format(**context)
    return re.sub(r"\b1 (item|character)s\b", r"1 \1", text)


def fault_of(fault: ErrorDetails) -> str:
    """Return a message to print after the name of the field.

    >>> fault_of({"type": "missing", "loc": ("jobs",), "msg": "Field required", "input": {}})
    'missing'
    """
    kind = fault["type"]
    if kind == "missing":
        return "missing"
    if kind == "json_invalid":
        return f"not valid JSON: {fault.get('ctx', {}).get('error', 'cut short')}"
    text = _message(fault)
    ours = kind not in EXPECTED and not _LEADING.match(fault["msg"])
    if EXPECTED.get(kind) == EXPECTED["extra_forbidden"]:
        return text
    return text if ours or fault["msg"].startswith("Value error, ") else f"expected {text}"
