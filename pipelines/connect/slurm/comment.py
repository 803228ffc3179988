"""The agent's line in a job's `admin_comment`: the answer's id, and what was asked for before the request changed.

`policy.py` writes it. Slurm's own fields hold the changed request only, so this is where the original is read.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

_LINE: Final = re.compile(r"(?:^|; )taut (?P<id>[^\s;]+)(?P<rest>[^;]*)")
_CHANGE: Final = re.compile(r"(?P<name>mem|mem-per-cpu|cpus-per-task) (?P<asked>\d+)->(?P<given>\d+)")


@dataclass(frozen=True, slots=True, kw_only=True)
class Comment:
    """What the comment holds: the answer's id, and by name of the field the amounts asked for and given."""

    answer_id: str | None = None
    changes: Mapping[str, tuple[int, int]] = field(default_factory=dict)


def read_comment(text: str) -> Comment:
    """Read an `admin_comment`; a change that was only observed (`would`) is none.

    >>> read_comment("site; taut f8-1 mem 65536->8192 MiB, cpus-per-task 8->2").changes
    {'mem': (65536, 8192), 'cpus-per-task': (8, 2)}
    >>> read_comment("taut f8-1 would mem 65536->8192 MiB")
    Comment(answer_id='f8-1', changes={})
    """
    found = _LINE.search(text)
    if found is None:
        return Comment()
    rest = found["rest"]
    if rest.startswith(" would"):
        return Comment(answer_id=found["id"])
    changes = {match["name"]: (int(match["asked"]), int(match["given"])) for match in _CHANGE.finditer(rest)}
    return Comment(answer_id=found["id"], changes=changes)
