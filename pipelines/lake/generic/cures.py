"""What to do about a row of one's own files that went to quarantine, in the words of its mapping.

What holds of any source stands in `pipelines.lake.checking`. Called by `pipelines.lake.generic.declaration`.
"""

from typing import Final

from pipelines.lake.generic.conversions import EPOCHS
from pipelines.lake.generic.kinds import TIME, Kind
from pipelines.lake.generic.mapping import ColumnMapping, GenericMapping, columns_of
from pipelines.lake.generic.records import COLUMN_COUNT, MOST_RECORD_CHARACTERS, TOO_LONG, UNREADABLE

JOB_STEP: Final = "job_step"


def cures_of(mapping: GenericMapping) -> dict[str, str]:
    """Return the cure of every rule that a mapping decides about."""
    cures = {
        UNREADABLE: "the line is no text of this format: an open quote, bytes of another encoding, no JSON object; "
        "set quote, delimiter or encoding, or export the row again",
        COLUMN_COUNT: "the row has more or fewer fields than the others: quote fields that hold the delimiter",
        JOB_STEP: "a step of a job, which is no job: export with sacct -X, and join what steps used to their jobs",
        TOO_LONG: f"a row of more than {MOST_RECORD_CHARACTERS} characters is no job: export the row again",
    }
    for columns, kinds in columns_of(mapping).values():
        for name, told in columns.items():
            if name in kinds:
                cures[f"unparsable_{name}"] = _unparsable(name, told, kinds[name])
    return cures


def _unparsable(name: str, told: ColumnMapping, kind: Kind) -> str:
    where = f"column {told.column!r}" if told.column is not None else "the constant"
    if kind is TIME:
        meant = "a time like 2024-01-31T12:00:00" if told.time == "iso" else f"a time by {told.time!r}"
        other = "another time format" if told.time in EPOCHS else f"another time format ({', '.join(EPOCHS)})"
        return f"{where} should be {meant}; give {name} {other}, or add what stands for no time to nulls"
    expects = kind.named[told.convert].expects if told.convert else kind.plain.expects
    if told.values:
        expects = f"one of {', '.join(list(told.values)[:12])}"
        return f"{where} should be {expects}; add the word to values of {name}, or set otherwise"
    return f"{where} should be {expects}; add what stands for nothing to nulls, or correct the file"
