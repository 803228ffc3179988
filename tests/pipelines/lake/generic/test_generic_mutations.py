"""Sixty spoiled files of every format, and spoiled mappings: each ends in a clear error or counted quarantine."""

import random
import shutil
from collections.abc import Callable
from math import ceil
from pathlib import Path
from typing import Final

import pytest

from pipelines.errors import SourceError
from pipelines.lake.generic.opening import opened_source
from pipelines.lake.ingest import ingest
from pipelines.lake.manifest import Manifest
from tests.pipelines.lake.generic.own_rows import BAD, ROWS, mapping_text, own_files
from tests.pipelines.lake.sources.mutations import (
    MUTATIONS,
    check_ended_well,
    cut,
    flip_bits,
    flip_characters,
    mix_encodings,
    state,
)

FILES: Final = 60
BINARY: Final = {"cut": cut, "bits": flip_bits, "characters": flip_characters, "encodings": mix_encodings}
WAYS: Final = [
    *(("csv", name, each) for name, each in MUTATIONS.items()),
    *(("parquet", name, each) for name, each in BINARY.items()),
]
ROUNDS: Final = {form: ceil(FILES / sum(way[0] == form for way in WAYS)) for form in ("csv", "parquet")}
HOSTILE: Final = (
    *("'", '"', "''; DROP TABLE job; --", '"); COPY job TO "/x', "{text}", "{}", "\\", "%", "\x00", "\n", "c1", "*"),
    *("../../etc/passwd", "/etc/passwd", "file://x", "a" * 5000, "", "0", "-1", "é", "\U0001f600", "rule", "line"),
)


def check_ends_well(place: Path, folder: Path, mapping: Path) -> str:
    """Ingest: a clear error and nothing committed, or tables that hold and accounts that close; return the error."""
    before, error = state(folder), ""
    manifest: Manifest | None = None
    try:
        opened = opened_source(mapping, folder)
        manifest = ingest(opened.source, opened.folder, place / "lake").manifest
    except SourceError as found:
        error = str(found)
        assert len(error) > 20
        assert "Traceback" not in error
    check_ended_well(place, manifest, before)
    return error


@pytest.mark.parametrize(("form", "name", "mutation"), WAYS, ids=lambda part: part if isinstance(part, str) else "")
@pytest.mark.slow
def test_a_spoiled_file_ends_in_an_error_or_in_quarantine(
    form: str, name: str, mutation: Callable[[bytes, random.Random], bytes], tmp_path: Path
) -> None:
    rng = random.Random(f"{form} {name}")
    for nth in range(ROUNDS[form]):
        place = tmp_path / str(nth)
        folder, mapping = own_files(place, form, (*ROWS, *rng.sample(list(BAD.values()), 3)))
        path = folder / "jobs"
        path.write_bytes(mutation(path.read_bytes(), rng))
        check_ends_well(place, folder, mapping)
        shutil.rmtree(place)


def _spoiled_mapping(rng: random.Random) -> str:
    """Return a mapping with a key, a value or a line replaced by something hostile."""
    lines = mapping_text("csv").splitlines()
    for _ in range(rng.randint(1, 2)):
        at = rng.randrange(len(lines))
        key, _, value = lines[at].partition("=")
        basic = (
            '"'
            + rng.choice(HOSTILE)
            .replace("\\", "\\\\")
            .replace('"', '\\"')
            .replace("\n", "\\n")
            .replace("\x00", "\\u0000")
            + '"'
        )
        lines[at] = rng.choice(
            (
                f"{key}= {basic}",
                f"{key}= {{ column = {basic} }}",
                f"{key}= {{ value = {basic} }}",
                f'{key}= {{ column = "State", values = {{ {basic} = "completed", COMPLETED = "failed" }} }}',
                f'{key}= {{ column = "Submit", time = {basic}, zone = {basic} }}',
                f'{key}= {{ column = "Gpu", unit = {basic} }}',
                f'{key}= {{ column = "Gpu", default = {basic} }}',
                f"{key}= {rng.choice(('7', '-7', '1e400', 'nan', '[]', 'true', '{}', '2024-01-01'))}",
                f"{basic} ={value}",
                "",
                lines[at].replace("slurm_", rng.choice(("", "k8s_", "slurm"))),
                "[" * rng.choice((3, 30_000)),
            )
        )
    return "\n".join(lines)


@pytest.mark.slow
def test_a_spoiled_mapping_ends_in_an_error_or_in_quarantine(tmp_path: Path) -> None:
    rng, errors = random.Random(11), 0
    for nth in range(FILES):
        place = tmp_path / str(nth)
        folder, mapping = own_files(place, "csv")
        mapping.write_text(_spoiled_mapping(rng))
        errors += bool(check_ends_well(place, folder, mapping))
        shutil.rmtree(place)

    assert FILES / 4 < errors < FILES
