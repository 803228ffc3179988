"""Slurm's notations: lists of resources, memory and spans of time, and the agent's line in a job's `admin_comment`.

`policy.py` writes the line. Slurm's own fields hold only the changed request, so the original is read from this line.
The lake has the same conversions as SQL (`pipelines.lake.generic.conversions`).
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

_MEMORY: Final = re.compile(r"(?P<amount>\d+(?:\.\d+)?)(?P<unit>[KMGTP]?)")
_UNIT_MIB: Final = {"": 1.0, "K": 1 / 1024, "M": 1.0, "G": 1024.0, "T": 1024.0**2, "P": 1024.0**3}
_SPAN: Final = re.compile(r"(?:(?P<d>\d+)-)?(?:(?P<h>\d+):)?(?P<m>\d+):(?P<s>\d+(?:\.\d+)?)")


def counts_of(text: str) -> Mapping[str, str]:
    """Return a list of resources by name.

    >>> counts_of("cpu=2,gres/gpu:t4=1,mem=8G")
    {'cpu': '2', 'gres/gpu:t4': '1', 'mem': '8G'}
    """
    pairs = (part.partition("=") for part in text.split(",") if "=" in part)
    return {name: value for name, _, value in pairs}


def amount_of(text: str) -> float | None:
    """Return a plain number, or None."""
    return float(text) if re.fullmatch(r"\d+(\.\d+)?", text) else None


def mib_of(text: str) -> float | None:
    """Return a text of memory in MiB (the default unit); None if it is not a number.

    >>> mib_of("8G"), mib_of("1536K"), mib_of("100"), mib_of("")
    (8192.0, 1.5, 100.0, None)
    """
    found = _MEMORY.fullmatch(text)
    return None if found is None else float(found["amount"]) * _UNIT_MIB[found["unit"]]


def seconds_of(text: str) -> float | None:
    """Return a span in seconds, or None.

    >>> seconds_of("00:02.197"), seconds_of("1-01:00:01"), seconds_of("")
    (2.197, 90001.0, None)
    """
    found = _SPAN.fullmatch(text)
    if found is None:
        return None
    days, hours, minutes = (int(found[name] or 0) for name in "dhm")
    return days * 86_400.0 + hours * 3_600.0 + minutes * 60.0 + float(found["s"])


_LINE: Final = re.compile(r"(?:^|; )taut (?P<id>[^\s;]+)(?P<rest>[^;]*)")
_CHANGE: Final = re.compile(
    r"(?P<name>mem|mem-per-cpu|cpus-per-task) (?P<asked>\d+)->(?P<given>\d+)(?: x(?P<tasks>\d+))?"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Comment:
    """Content of the comment: the answer's id, and by field the requested and the given amount.

    `tasks` is the number of tasks of the whole job, if its CPUs changed.
    """

    answer_id: str | None = None
    changes: Mapping[str, tuple[int, int]] = field(default_factory=dict)
    tasks: int = 1

    def original(self, cpus: float | None, mem_mib: float | None, machines: int) -> tuple[float | None, float | None]:
        """Return the CPUs and the memory in MiB of the whole job's original request, by its present request.

        An amount that differs from the comment was set later by `scontrol update`; it then counts as the request.

        >>> shrunk = read_comment("taut f8-1 mem 65536->8192 MiB, cpus-per-task 8->2 x3")
        >>> shrunk.original(6.0, 8192.0, 1), shrunk.original(12.0, 8192.0, 1)
        ((24, 65536), (12.0, 65536))
        """

        def before(now: float | None, name: str, times: float, times_before: float) -> float | None:
            asked, given = self.changes.get(name, (0, 0))
            return asked * times_before if given and now == given * times else now

        asked_cpus = before(cpus, "cpus-per-task", self.tasks, self.tasks)
        if "mem-per-cpu" in self.changes:
            return asked_cpus, before(mem_mib, "mem-per-cpu", cpus or 0.0, asked_cpus or 0.0)
        return asked_cpus, before(mem_mib, "mem", machines, machines)


def read_comment(text: str) -> Comment:
    """Read an `admin_comment`; a change that was only observed (`would`) does not count.

    >>> read_comment("site; taut f8-1 mem 65536->8192 MiB, cpus-per-task 8->2").changes
    {'mem': (65536, 8192), 'cpus-per-task': (8, 2)}
    >>> read_comment("taut f8-1 would mem 65536->8192 MiB")
    Comment(answer_id='f8-1', changes={}, tasks=1)
    """
    found = _LINE.search(text)
    if found is None:
        return Comment()
    rest = found["rest"]
    if rest.startswith(" would"):
        return Comment(answer_id=found["id"])
    matches = list(_CHANGE.finditer(rest))
    changes = {match["name"]: (int(match["asked"]), int(match["given"])) for match in matches}
    tasks = max((int(match["tasks"] or 1) for match in matches), default=1)
    return Comment(answer_id=found["id"], changes=changes, tasks=tasks)
