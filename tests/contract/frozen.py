"""Frozen entries: what was asked and what came back, one JSON object per line; how two answers are compared.

An entry has a `name`, the input, and the `answer` as a user sees it. With `TAUT_RECORD=PATTERN` in the environment, the
entries whose name matches the pattern take the present answer, for a wanted difference; the others are compared.
"""

import json
import math
import os
import re
from pathlib import Path
from typing import Any

GOLDEN = Path(__file__).with_name("golden")
CLOSE = 2e-3
"""Relative difference that a number may have between machines, also within a text."""
VARIES = re.compile(
    r"(answer_id|request_id|history_age_s|age_days|age_s|recorded_ts|at_ts|before|digest|created|created_ts|trained_ts|run_id|body\.id|inputs\.rows)$"
)
"""Fields that differ from run to run: ids, the time of day."""
NUMBER = re.compile(r"-?\d+(?:\.\d+)?(?:e[+-]?\d+)?")
SHOWN = 2
"""Rows or items of a longer list that are kept."""

Entry = dict[str, Any]


def entries(file: str) -> list[Entry]:
    """Return the entries of a golden file, in its order."""
    return [json.loads(line) for line in (GOLDEN / file).read_text(encoding="utf-8").splitlines()]


def check(file: str, entry: Entry, answer: object) -> None:
    """Compare an answer with that of its entry, or record it if its name is to be recorded."""
    answer = json.loads(json.dumps(answer))
    pattern = os.environ.get("TAUT_RECORD")
    if pattern and re.search(pattern, entry["name"]):
        _record(file, entry | {"answer": short(answer)})
        return
    differing = differences(entry["answer"], answer)
    assert not differing, f"{entry['name']}:\n" + "\n".join(differing[:20])


def summary(rows: list[dict[str, Any]]) -> Entry:
    """Return what is kept of a command's rows: count, fields, the first rows, the sum of each number column."""
    fields = list(rows[0]) if rows else []
    sums = {
        name: math.fsum(row[name] for row in rows if row.get(name) is not None)
        for name in fields
        if not VARIES.search(name) and all(isinstance(row.get(name), int | float | None) for row in rows)
    }
    return {"count": len(rows), "fields": fields, "first": rows[:SHOWN], "sums": sums}


def brief(value: object) -> object:
    """Return a value with the longer of its lists cut to their length, first items and last item."""
    if isinstance(value, dict):
        return {key: brief(each) for key, each in value.items()}
    if not isinstance(value, list):
        return value
    items = [brief(each) for each in value]
    return items if len(items) <= 2 * SHOWN else {"count": len(items), "first": items[:SHOWN], "last": items[-1]}


def differences(frozen: object, answer: object, where: str = "") -> list[str]:
    """Return where an answer differs from the frozen one, by path."""
    if VARIES.search(where):
        return [] if type(frozen) is type(answer) else [f"{where}: {frozen!r} was frozen, now {answer!r}"]
    if isinstance(frozen, dict) and isinstance(answer, dict):
        if list(frozen) != list(answer):
            return [f"{where}: {list(frozen)} was frozen, now {list(answer)}"]
        return [each for key in frozen for each in differences(frozen[key], answer[key], f"{where}.{key}")]
    if isinstance(frozen, list) and isinstance(answer, list) and len(frozen) == len(answer):
        pairs = enumerate(zip(frozen, answer, strict=True))
        return [each for i, (one, other) in pairs for each in differences(one, other, f"{where}[{i}]")]
    if _numbers(frozen, answer):
        return [] if _close(float(frozen), float(answer)) else [f"{where}: {frozen} was frozen, now {answer}"]  # type: ignore[arg-type]
    if isinstance(frozen, str) and isinstance(answer, str) and NUMBER.split(frozen) == NUMBER.split(answer):
        pairs_of_text = zip(NUMBER.findall(frozen), NUMBER.findall(answer), strict=True)
        if all(_close(float(one), float(other)) for one, other in pairs_of_text):
            return []
    return [] if frozen == answer else [f"{where}: {frozen!r} was frozen, now {answer!r}"]


def _numbers(*values: object) -> bool:
    return all(isinstance(value, int | float) and not isinstance(value, bool) for value in values)


def _close(one: float, other: float) -> bool:
    return math.isclose(one, other, rel_tol=CLOSE, abs_tol=1e-6)


def short(value: object) -> object:
    """Return a value with the floats in it at six digits."""
    if isinstance(value, dict):
        return {key: short(each) for key, each in value.items()}
    if isinstance(value, list):
        return [short(each) for each in value]
    return float(f"{value:.6g}") if isinstance(value, float) else value


def _record(file: str, entry: Entry) -> None:
    lines = [entry if each["name"] == entry["name"] else each for each in entries(file)]
    text = "".join(json.dumps(each, ensure_ascii=False) + "\n" for each in lines)
    (GOLDEN / file).write_text(text, encoding="utf-8")
