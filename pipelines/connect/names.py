"""The group of recurring jobs in a job's name: numbers, hashes, dates and the ids of samples become `#`.

Jobs of one pipeline seldom have one name: `etl-17`, `snakejob.align.17.sh`, `sample_SRR1734`. For other names, a site
writes its own patterns to the file TAUT_JOB_NAMES. All programs of a cluster need the same patterns.
"""

import os
import re
import re._parser as parser  # type: ignore[import-not-found]  # the only parser of such patterns
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import Final

from pipelines.errors import BadUsage

__all__ = ["normalised"]

VARIABLE: Final = "TAUT_JOB_NAMES"
PATTERNS: Final = (
    r"[0-9a-fA-F]{8}(?:-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}",
    r"(?<![0-9A-Za-z])(?=[A-Za-z]*[0-9])(?:[0-9a-fA-F]{6,}|[bcdfghjklmnpqrstvwxz2456789]{8,10})(?![0-9A-Za-z])",
    r"(?<=-)[bcdfghjklmnpqrstvwxz2456789]{5}\Z",
    r"[0-9]+",
    r"#(?:[-_.:]?#)+",
)
"""Patterns replaced by `#`, in order: UUIDs; hashes (words with a digit, of six or more hex digits or eight to ten of
Kubernetes' letters); a suffix made by Kubernetes; numbers; and a row of `#`, such as a date."""
MOST_CHARACTERS: Final = 1 << 16
MOST_REPEATS: Final = 4
"""Most unbounded repetitions in a site's pattern; more take over a second on a job name of 100 characters."""
LONGEST_REPEAT: Final = 16
"""Repetitions up to this number count as bounded."""


def normalised(name: str) -> str:
    """Return a job's name with the parts that change from run to run as `#`; empty only if the name is empty.

    >>> [normalised(name) for name in ("etl-17", "snakejob.align.17.sh", "nf-BWA_(s12)", "dump_2026-11-28", "train")]
    ['etl-#', 'snakejob.align.#.sh', 'nf-BWA_(s#)', 'dump_#', 'train']
    """
    for pattern in _patterns(os.environ.get(VARIABLE, "")):
        name = pattern.sub("#", name)
    return name


@cache
def _patterns(file: str) -> Sequence[re.Pattern[str]]:
    """Return the patterns in a site's file, one a line (none in an empty file); without a file, `PATTERNS`."""
    if not file:
        return [re.compile(each) for each in PATTERNS]
    try:
        with Path(file).open(encoding="utf-8-sig") as stream:
            text = stream.read(MOST_CHARACTERS + 1)
        if len(text) > MOST_CHARACTERS:
            raise ValueError(f"more than {MOST_CHARACTERS} characters")
        found = [re.compile(line) for line in text.splitlines() if line]
    except (OSError, ValueError, OverflowError, RecursionError, re.error) as error:
        raise BadUsage(f"{VARIABLE} {file}: {error}; expected a file of regular expressions, one a line") from error
    empty = next((each.pattern for each in found if not all(m.group() for m in each.finditer("ab-12 c_3"))), None)
    if empty is not None:
        raise BadUsage(f"{VARIABLE} {file}: {empty[:80]!r} matches the empty text; expected at least one character")
    slow = next((each.pattern for each in found if _can_hang(each.pattern)), None)
    if slow is not None:
        raise BadUsage(
            f"{VARIABLE} {file}: {slow[:80]!r} can take forever; expected at most {MOST_REPEATS} of * and +, "
            "none of them around a repetition or an alternative"
        )
    return found


def _can_hang(pattern: str) -> bool:
    """Return whether matching may take exponential time (a choice in a repetition), or a high power of the length.

    >>> [_can_hang(each) for each in ("(a+)+b", "(a|aa)*b", ".*.*.*.*.*b", "_v[0-9]+(-rc)?")]
    [True, True, True, False]
    """
    repeats = 0

    def has_choice(node: object, *, inside: bool) -> bool:
        nonlocal repeats
        if isinstance(node, parser.SubPattern | list):
            return any(has_choice(each, inside=inside) for each in node)
        if not isinstance(node, tuple):
            return False
        kind, unbounded = node[0], False
        if kind in (parser.MAX_REPEAT, parser.MIN_REPEAT):
            unbounded = node[1][1] > LONGEST_REPEAT
            repeats += unbounded
        chosen = kind in (parser.MAX_REPEAT, parser.MIN_REPEAT, parser.BRANCH)
        return (inside and chosen) or any(has_choice(each, inside=inside or unbounded) for each in node)

    return has_choice(parser.parse(pattern), inside=False) or repeats > MOST_REPEATS
