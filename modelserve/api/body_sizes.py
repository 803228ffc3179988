"""Limits on the numbers of values, lists and objects in a large body, checked before it is validated.

Limits on its bytes are in `modelserve.api.bodies`, which calls this module.
"""

from typing import Final

from pydantic_core import from_json

from modelserve.api.problems import Refusal

PARTS_LIMIT: Final = 100_000
VALUES_LIMIT: Final = 600_000
FIELDS_LIMIT: Final = 100
ROWS_LIMIT: Final = 10_000
"""Maximum number of items in one list of a body.

`PARTS_LIMIT`, `VALUES_LIMIT` and `FIELDS_LIMIT` are the maximum numbers of lists and objects in a body, of values in a
body, and of fields in one object. A valid row has about sixty values and a few objects.
"""


def check_size(data: bytes, *, status: int) -> None:
    """Raise `Refusal` if a body has more values, lists or objects than any valid body can have.

    Validation takes microseconds for each invalid value, so a body with millions of them would block the worker. Values
    are therefore counted before validation.
    """
    if data.count(b"{") + data.count(b"[") > PARTS_LIMIT or data.count(b",") > VALUES_LIMIT:
        raise _too_much(status, "the body", f"{PARTS_LIMIT} lists and objects, and {VALUES_LIMIT} values")
    try:
        waiting = [from_json(data)]
    except ValueError:
        return  # not JSON, which is reported when the body is parsed
    while waiting:
        part = waiting.pop()
        if isinstance(part, dict) and len(part) > FIELDS_LIMIT:
            raise _too_much(status, "an object", f"{FIELDS_LIMIT} fields")
        if isinstance(part, list) and len(part) > ROWS_LIMIT:
            raise _too_much(status, f"a list of {len(part)}", f"{ROWS_LIMIT} jobs in one call")
        inner = part.values() if isinstance(part, dict) else part if isinstance(part, list) else ()
        waiting.extend(each for each in inner if isinstance(each, dict | list))


def _too_much(status: int, what: str, limit: str) -> Refusal:
    expected = f"at most {limit}"
    return Refusal(
        status, f"{what} is too large, expected {expected}", faults=[{"field": "body", "expected": expected}]
    )
