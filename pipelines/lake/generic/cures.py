"""Advice on how to correct quarantined rows of a user's files, in terms of the mapping file.

Advice that applies to all sources is in `pipelines.lake.problems`.
"""

from typing import Final

from pipelines.lake.generic.conversions import EPOCHS, skipped_hours
from pipelines.lake.generic.kinds import PERCENT, TIME, Kind
from pipelines.lake.generic.mapping import ColumnMapping, GenericMapping, columns_of
from pipelines.lake.generic.records import MOST_RECORD_CHARACTERS
from pipelines.lake.reading import COLUMN_COUNT, TOO_LONG, UNREADABLE

JOB_STEP: Final = "job_step"


def cures_of(mapping: GenericMapping) -> dict[str, str]:
    """Return advice for each rule whose correction depends on the mapping, by rule name."""
    cures = {
        UNREADABLE: "the line cannot be read: an open quote, bytes of another encoding, or not a JSON object; "
        "set quote, delimiter or encoding, or export the row again",
        COLUMN_COUNT: "the row has more or fewer fields than the others: quote fields that contain the delimiter",
        JOB_STEP: "the row is a step of a job: export with sacct -X, and join the use of steps to their jobs",
        TOO_LONG: f"the row has more than {MOST_RECORD_CHARACTERS} characters: export it again",
    }
    for columns, kinds in columns_of(mapping).values():
        for name, mapped in columns.items():
            if name in kinds:
                cures[f"unparsable_{name}"] = _unparsable(name, mapped, kinds[name], mapped.zone or mapping.jobs.zone)
    return cures


def _unparsable(name: str, mapped: ColumnMapping, kind: Kind, zone: str) -> str:
    where = f"column {mapped.column!r}" if mapped.column is not None else "the constant"
    if kind is TIME:
        expected = "a time like 2024-01-31T12:00:00" if mapped.time == "iso" else f"a time by {mapped.time!r}"
        if mapped.time not in EPOCHS and skipped_hours(zone):
            expected += f" that no clock change of {zone} skips"
        other = "another time format" if mapped.time in EPOCHS else f"another time format ({', '.join(EPOCHS)})"
        return f"{where} should be {expected}; give {name} {other}, or add the text that means no time to nulls"
    expects = kind.named[mapped.convert].expects if mapped.convert else kind.plain.expects
    if mapped.unit == PERCENT:
        expects += ", with or without a percent sign"
    if mapped.values:
        expects = f"one of {', '.join(list(mapped.values)[:12])}"
        return f"{where} should be {expects}; add the word to values of {name}, or set otherwise"
    return f"{where} should be {expects}; add the text that means missing to nulls, or correct the file"
