import json

import pytest
from pydantic import ValidationError

from modelserve.contract.requests import JobRow


def asked(moment: object) -> JobRow:
    row = {"job_id": "a", "task_type": "ctr", "request": {}, "submit_ts": moment}
    return JobRow.model_validate_json(json.dumps(row), strict=True)


@pytest.mark.parametrize(
    ("moment", "said"),
    [
        ("0", "four digits and a dash"),
        ("1585699200", "four digits and a dash"),
        ("1e9", "four digits and a dash"),
        ("", "four digits and a dash"),
        (1585699200, "valid datetime"),
        ("2020-04-01T00:00:00", "timezone"),
        ("2020-13-01T00:00:00Z", "month value"),
    ],
)
def test_what_is_no_moment_is_refused(moment: object, said: str) -> None:
    with pytest.raises(ValidationError, match=said):
        asked(moment)


@pytest.mark.parametrize("moment", ["2020-04-01T00:00:00Z", "2020-04-01T08:00:00+08:00", "2020-04-01 00:00:00.0Z"])
def test_a_moment_written_out_is_taken(moment: str) -> None:
    assert asked(moment).submit_ts.timestamp() == 1585699200


def test_a_job_may_name_no_moment() -> None:
    assert asked(None).submit_ts is None
