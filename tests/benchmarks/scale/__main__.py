"""How ingest, training, answers and rounds grow with jobs and machines; commands run in a process of their own.

Nothing passes or fails; all jobs are made up. Prints seconds, processor seconds and peak memory at each size.
Run by hand: `python -m tests.benchmarks.scale --jobs 10000 --jobs 100000`; 10^7 jobs take an hour and 2 GB of disk.
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final

from pipelines.render import render
from tests.benchmarks.scale.jobs import write
from tests.benchmarks.scale.rounds import round_rows

SIZES: Final = (10_000, 100_000, 1_000_000)
ASKED: Final = 1000
"""Recommendations asked for."""

Row = dict[str, object]


def taut(what: str, jobs: int, folder: Path, *arguments: object) -> Row:
    """Run a command of `taut` beside the lake of a folder; return what it took.

    `peak_mib` is the most memory that one of its processes held.

    Raises
    ------
    RuntimeError
        If it fails.
    """
    command = [Path(sys.executable).with_name("taut"), *map(str, arguments), "--lake", str(folder / "lake")]
    start = time.perf_counter()
    with (folder / "said.txt").open("wb") as said, subprocess.Popen(command, stdout=said, stderr=said) as child:
        _, state, used = os.wait4(child.pid, 0)
        child.returncode = os.waitstatus_to_exitcode(state)
    if child.returncode:
        raise RuntimeError(f"{what} ended with {child.returncode}: {(folder / 'said.txt').read_text()}")
    cpu_s, took_s = used.ru_utime + used.ru_stime, time.perf_counter() - start
    return {"what": what, "jobs": jobs, "seconds": took_s, "cpu_s": cpu_s, "peak_mib": used.ru_maxrss / 1024}


def ask(file: Path, groups: int) -> None:
    """Write `ASKED` jobs of known groups, for `taut recommend`."""
    rows = [
        {
            "job_id": f"new-{n}",
            "trace": "made",
            "task_type": "cv",
            "user": "u1",
            "group": f"train-{5 * (n % groups) + 1}",
        }
        | {"request": {"cpu_cores": 8.0, "mem_gib": 64.0, "gpus": 1.0}}
        for n in range(ASKED)
    ]
    file.write_text("".join(json.dumps(row) + "\n" for row in rows))


def rows_of(jobs: int, folder: Path, newest: Sequence[int]) -> Iterator[Row]:
    """Yield what each command takes at a size, training once for each bound of `newest` (the default if empty)."""
    table, mapping = write(folder, jobs)
    yield taut("ingest", jobs, folder, "ingest", "generic", "--mapping", mapping, "--from", table, "--as", "made")
    for bound in newest or (None,):
        chosen = () if bound is None else ("--newest", bound)
        yield taut(f"train {' '.join(map(str, chosen))}".strip(), jobs, folder, "train", "--trace", "made", *chosen)
    taut("promote", jobs, folder, "promote", "--force")
    ask(folder / "asked.jsonl", groups=jobs // 1000)
    yield taut(f"recommend {ASKED}", jobs, folder, "recommend", folder / "asked.jsonl")


def main(argv: Sequence[str] | None = None) -> None:
    """Run the chosen sizes in order."""
    parser = argparse.ArgumentParser(
        prog="python -m tests.benchmarks.scale", description=(__doc__ or "").partition("\n")[0]
    )
    parser.add_argument("--jobs", action="append", type=int, metavar="N", help=f"a size (repeatable; {SIZES} if none)")
    parser.add_argument("--newest", action="append", type=int, default=[], metavar="N", help="a bound on training")
    parser.add_argument("--folder", type=Path, help="where the files go (a temporary folder)")
    parser.add_argument("--only", choices=("commands", "rounds"), help="one part (both if not given)")
    given = parser.parse_args(argv)
    if given.only != "commands":
        _show(round_rows())
    if given.only == "rounds":
        return
    with tempfile.TemporaryDirectory(dir=given.folder) as scratch:
        for jobs in given.jobs or SIZES:
            _show(rows_of(jobs, Path(scratch) / str(jobs), given.newest))


def _show(rows: Iterator[Row]) -> None:
    """Print each row as it is measured."""
    for row in rows:
        render([row], "table", stream=sys.stdout)
        sys.stdout.flush()


if __name__ == "__main__":
    main()
