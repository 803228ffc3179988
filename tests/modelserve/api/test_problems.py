"""What a refused body is told: the field at fault, and what was expected of it in plain words."""

import pytest
from pydantic import ValidationError

from modelserve.api.problems import invalid_body
from modelserve.contract.reservations import MAX_RUNNING, MAX_SAMPLES, ReserveBody

JOB = '{"job_id": "a", "task_type": "ctr", "request": {"cpu_cores": 1}, "age_s": 60%s}'
LONG = f', "samples": {{"at_s": [{", ".join(["0"] * (MAX_SAMPLES + 1))}]}}'


@pytest.mark.parametrize(
    ("jobs", "expected"),
    [
        ([], "jobs: expected at least 1 item"),
        ([JOB % ""] * (MAX_RUNNING + 1), f"jobs: expected at most {MAX_RUNNING} items"),
        ([JOB % LONG], f"jobs.0.samples.at_s: expected at most {MAX_SAMPLES} items"),
        ([JOB % ', "held": 2'], "jobs.0.held: expected true or false"),
    ],
)
def test_a_list_of_the_wrong_length_is_refused_with_the_limit(jobs: list[str], expected: str) -> None:
    with pytest.raises(ValidationError) as error:
        ReserveBody.model_validate_json(f'{{"jobs": [{", ".join(jobs)}]}}', strict=True)

    refusal = invalid_body(error.value)

    assert (refusal.status, str(refusal)) == (422, expected)
