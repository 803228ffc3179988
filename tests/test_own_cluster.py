"""The walk-through with one's own jobs: carried out from table to recommendation; it names all that there is."""

import json
import re
from pathlib import Path

import pytest

from pipelines.lake.generic.kinds import JOB_COLUMNS, MACHINE_COLUMNS, USAGE_COLUMNS
from pipelines.lake.generic.mapping import DERIVED, ColumnMapping, RowsMapping
from tests.own_cluster_examples import PAGE, steps, wrong_answers

TEXT = PAGE.read_text(encoding="utf-8")
REFERENCE = TEXT.partition("## Reference of mappings\n")[2]
NAMED = set(re.findall(r"`([^`\n]+)`", REFERENCE))


@pytest.mark.slow
def test_every_step_gives_the_answer_shown(tmp_path: Path) -> None:
    assert wrong_answers(TEXT, tmp_path) == [], "write the answers anew with `python -m tests.own_cluster_examples`"


def test_the_walk_goes_from_a_check_to_a_recommendation_that_shrinks() -> None:
    walked = list(steps(TEXT))
    verbs = re.findall(r"^taut ([a-z]+)", "\n".join(step.code for step in walked), re.MULTILINE)

    assert verbs == ["init", "ingest", "ingest", "sql", "stats", "train", "promote", "recommend"]
    [advice] = json.loads(walked[-1].answer or "")
    assert advice["mem_gib_target"] < advice["mem_gib"]
    assert advice["measured_runs"] > 50


@pytest.mark.parametrize("columns", [JOB_COLUMNS, USAGE_COLUMNS, MACHINE_COLUMNS])
def test_every_column_unit_and_conversion_is_named(columns: dict[str, object]) -> None:
    kinds = columns.values()
    wanted = {*columns, *(n for kind in kinds for n in (*kind.units, *kind.named))}

    assert wanted <= NAMED


def test_every_key_and_derivation_is_named() -> None:
    keys = {field.alias or name for model in (RowsMapping, ColumnMapping) for name, field in model.model_fields.items()}

    assert keys - {"columns"} <= NAMED
    assert all(how in REFERENCE for ways in DERIVED.values() for how in ways)
