"""Kill -9 ingests at seeded points of their commit to a bucket: readers must see the old trace or the new one.

A commit is the uploads of the tables and the PUT of the manifest. A proxy stalls one of these PUTs, and the ingest is
killed there. The store is a real S3-compatible server.
"""

import random
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Final, get_args

from pipelines.lake.generic.opening import opened_source
from pipelines.lake.ingest import ingest
from pipelines.lake.lake import Lake
from tests.pipelines.lake.generic.own_rows import COLUMNS, ROWS, written_as_csv
from tests.pipelines.lake.stalling import Phase, Stalling, stalling

MAPPING: Final = "mapping.toml"
STALL_S: Final = 60.0
POLL_S: Final = 0.02
VERSIONS: Final = {"old": (5, 3), "new": (6, 4)}
"""Rows of the two clusters in each version of the trace."""

Row = dict[str, object]
Seen = tuple[tuple[int, int], int]


def sources(folder: Path) -> list[Path]:
    """Write both versions of the trace; return their folders."""
    for name, (north, south) in VERSIONS.items():
        (folder / name).mkdir(parents=True)
        written_as_csv(folder / name / "part-north.csv", ROWS[:north])
        written_as_csv(folder / name / "part-south.csv", ROWS[:south])
        (folder / name / MAPPING).write_text(f'[jobs]\nfile = "part-{{cluster}}.csv"\n{COLUMNS}')
    return [folder / name for name in VERSIONS]


def ingested(lake: str, version: Path) -> None:
    """Ingest a version to the end, in this process."""
    with opened_source(version / MAPPING, str(version)) as opened:
        ingest(opened.source, opened.folder, lake, as_name="own")


def seen(lake: str) -> Seen:
    """Read all rows; return the number of jobs of each cluster, and of jobs with a use."""
    with Lake(lake) as opened:
        jobs, usage = opened.table("jobs").collect(), opened.table("usage").collect()
    north, south = (jobs.filter(cluster=each).height for each in ("north", "south"))
    return (north, south), usage.height


def readings(lake: str, over: threading.Event) -> list[Seen | str]:
    """Read the lake without pause until `over`; return what was seen, and any error."""
    read: list[Seen | str] = []
    while not over.wait(POLL_S):
        try:
            read.append(seen(lake))
        except Exception as error:  # any error of a reader is a result
            read.append(f"{type(error).__name__}: {error}")
    return read


def killed_commits(lake: str, folder: Path, kills: int, seed: int) -> Iterator[Row]:
    """Ingest the versions in turn into `lake`, killing each ingest once; yield where it was killed, and what is seen.

    Every second kill is at the PUT of the manifest, the others at a table. The last row is of a reader that read
    all the time.
    """
    versions = sources(folder)
    rng, whole, puts, over = random.Random(seed), {}, {}, threading.Event()
    with stalling() as proxy, ThreadPoolExecutor(1) as pool:
        for version in (*versions, *versions):  # the second round replaces the other version, as the kills do
            proxy.stall(None)
            ingested(lake, version)
            whole[seen(lake)], puts[version] = version, len(proxy.puts)
        reading = pool.submit(readings, lake, over)
        try:
            for kill in range(kills):
                now = seen(lake)
                [target] = set(whole) - {now}
                last = puts[whole[target]]
                nth, phase = last if kill % 2 == 0 else rng.randrange(1, last), rng.choice(get_args(Phase))
                killed_ingest(lake, whole[target], proxy, nth, phase)
                after, of_manifest = seen(lake), "/manifests/" in proxy.puts[-1]
                yield {
                    "kill": f"commit {kill + 1}",
                    "put": f"{nth} of {last}",
                    "of": "manifest" if of_manifest else "table",
                    "phase": phase,
                    "expected": "new" if of_manifest and phase == "after" else "old",
                    "found": "new" if after == target else "old" if after == now else f"half: {after}",
                }
        finally:
            over.set()
        broken = [each for each in reading.result() if each not in whole]
    result = f"half: {broken[:3]}" if broken else "old or new"
    yield {"kill": f"{len(reading.result())} readings", "expected": "old or new", "found": result}


def killed_ingest(lake: str, folder: Path, proxy: Stalling, nth: int, phase: Phase) -> None:
    """Ingest by the command through the proxy; kill the process while its `nth` PUT stalls."""
    proxy.stall(nth, phase)
    taut = Path(sys.executable).with_name("taut")
    command = [taut, "ingest", "generic", "--mapping", folder / MAPPING, "--from", folder, "--as", "own"]
    with subprocess.Popen([*map(str, command), "--lake", lake], stderr=subprocess.PIPE) as child:
        deadline = time.monotonic() + STALL_S
        while not proxy.stalled.wait(POLL_S):
            if child.poll() is not None or time.monotonic() > deadline:
                child.kill()
                raise RuntimeError(f"an ingest did not reach its PUT {nth}: {child.communicate()[1].decode()[-500:]}")
        child.kill()
