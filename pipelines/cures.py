"""What to do about quarantined rows, rule by rule: the last column of `taut ingest --check`.

A source may know better (`Source.cures`); the rules themselves stand in the sources. Called by
`pipelines.lake.checking`.
"""

from typing import Final

from pipelines.lake.sources.source import Source

_EXPORT: Final = "the row is at fault, not its form: correct or leave it; it stays out"
_ORDER: Final = (
    "are the columns exchanged, or of different zones? In an hour that a change of clocks repeats, "
    "times need their offset or must be epochs"
)
CURES: Final[dict[str, str]] = {
    "capacity_beyond_measure": "no machine has that much: is the unit right?",
    "column_count": "the row has more or fewer fields than its header: fetch or export the file again",
    "duplicate_key": "the key occurred before, and the first row was kept: leave one row per key",
    "duration_contradicts_times": "the duration is not end less start: correct one of them",
    "end_before_start": f"the end lies before the start: {_ORDER}",
    "free_above_total": "more memory is free than there is: are the columns exchanged?",
    "missing_key": "a row that names nothing cannot be referred to: fill in its key",
    "negative": "a number below zero: correct it",
    "negative_capacity": "a machine with less than nothing: correct the number",
    "negative_request": "a request below zero: correct the number",
    "negative_time": "a time span below zero: are start and end exchanged?",
    "negative_use": "use below zero: correct the number",
    "no_capacity": "a machine without its sizes cannot be used: fill them in",
    "no_gpu_count": "a machine without its number of GPUs: fill it in, 0 for none",
    "no_instances": "fewer than one instance: leave it empty where it is not known",
    "no_job": "no job of that id in the job table: is one of the files older?",
    "no_request": "a pod without a request: fill it in, 0 for none",
    "no_submit_time": "a job without a time of submission has no place in any history: fill it in",
    "no_task": "no task of that name in the task table: is one of the files older?",
    "request_beyond_measure": "nobody asks for that much: is the unit right?",
    "share_contradicts_gpus": "a share of a GPU is of one GPU: correct either number",
    "start_before_submit": f"the start lies before the submission: {_ORDER}",
    "start_outside_task": "an instance that starts while its task does not run: is one of the files older?",
    "time_beyond_measure": "longer than three centuries: is the unit right?",
    "total_contradicts_sum": "the total is not the sum of its parts: correct one of them",
    "unknown_status": "a state that no vocabulary lists: correct it",
    "unparsable_attempt_time": "an attempt's time that is none: expected YYYY-MM-DD HH:MM:SS",
    "unreadable_line": "the line is no UTF-8 text, or too long: fetch or export the file again",
    "use_beyond_measure": "no device is that busy: is the unit right?",
}
UNPARSABLE: Final = "unparsable_"


def cure_of(source: Source, rule: str) -> str:
    """Return what to do about rows that break a rule of a source.

    >>> from pipelines.lake.sources import SOURCES
    >>> cure_of(SOURCES["pai"], "unparsable_plan_cpu")
    'plan_cpu is not written as the format has it: correct it, or leave it empty'
    """
    told = source.cures.get(rule) or CURES.get(rule)
    if told is None and rule.startswith(UNPARSABLE):
        return f"{rule.removeprefix(UNPARSABLE)} is not written as the format has it: correct it, or leave it empty"
    return told or _EXPORT
