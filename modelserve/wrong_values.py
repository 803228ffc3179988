"""Turn pydantic's errors into plain words on what a field should contain.

Every message about an invalid body, file or setting uses these words.
"""

import re
from collections.abc import Mapping
from typing import Final

from pydantic_core import ErrorDetails

__all__ = ["WITHOUT_NUL", "fault_of", "found_and_expected"]

_KINDS: Final[Mapping[str, tuple[str, ...]]] = {
    "no such field": ("extra_forbidden", "unexpected_keyword_argument"),
    "null": ("none_required",),
    "true or false": ("bool_type", "bool_parsing"),
    "a whole number": ("int_type", "int_parsing", "int_from_float"),
    "a smaller whole number": ("int_parsing_size",),
    "a number": ("float_type", "float_parsing"),
    "a finite number": ("finite_number",),
    "more than {gt}": ("greater_than",),
    "at least {ge}": ("greater_than_equal",),
    "less than {lt}": ("less_than",),
    "at most {le}": ("less_than_equal",),
    "a multiple of {multiple_of}": ("multiple_of",),
    "text": ("string_type", "string_sub_type"),
    "valid Unicode text": ("string_unicode",),
    "text of at least {min_length} characters": ("string_too_short",),
    "text of at most {max_length} characters": ("string_too_long",),
    "text that matches {pattern}": ("string_pattern_mismatch",),
    "{expected}": ("literal_error", "enum"),
    "one of {expected_tags}": ("union_tag_invalid",),
    "at least {min_length} items": ("too_short",),
    "at most {max_length} items": ("too_long",),
    "a list": ("list_type", "tuple_type", "set_type", "frozen_set_type", "iterable_type"),
    "an object with named fields": (
        "dict_type", "mapping_type", "model_type", "model_attributes_type", "dataclass_type",
    ),
    "a date and time with a time zone, like 2024-01-31T12:00:00Z": (
        "datetime_type", "datetime_parsing", "datetime_from_date_parsing", "datetime_object_invalid", "timezone_naive",
        "timezone_aware", "timezone_offset",
    ),
    "a date, like 2024-01-31": ("date_type", "date_parsing", "date_from_datetime_parsing"),
    "valid JSON": ("json_invalid",),
    "a path": ("path_type",),
}  # fmt: skip
WITHOUT_NUL: Final = r"^[^\x00]+$"
"""Pattern of a text that all databases can store."""
EXPECTED: Final[Mapping[str, str]] = {kind: text for text, kinds in _KINDS.items() for kind in kinds}
"""What was expected, by pydantic's type of error; the error's context fills the braces."""

_LEADING: Final = re.compile(
    r"^(?:Value error, |(?:Input|Value|String|URL|List|Tuple|Data) should (?:be |have )?)", re.I
)

_SENTENCE: Final = re.compile(r"(?:(?:found )?(?P<found>.+)[,;] )?expected (?P<expected>.+)", re.DOTALL)
"""A message of this project: `found X, expected Y`, one of the two parts, or another statement instead of `found X`."""


def found_and_expected(message: str) -> tuple[str | None, str]:
    """Split a message into the value found (None if it names none) and the value expected.

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
    text = "text without a NUL character" if context.get("pattern") == WITHOUT_NUL else words.format(**context)
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
