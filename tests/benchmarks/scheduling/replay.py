"""The full replay of Philly timed, from the canonical tables to its rows: models trained, sizes predicted, jobs run.

Runs in a process of its own, bounded in time. Called by `tests.benchmarks.scheduling`; `python -m` runs one replay.
"""

import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Final

from pipelines.lake.lake import Lake
from pipelines.studies.replay.study import Config, replays_of
from pipelines.studies.study import Context
from tests.benchmarks.scheduling.arrivals import PHILLY_TRACE, philly_lake
from tests.benchmarks.serving.figures import Bar, Row, amount_row

CONFIG: Final = Config(readings=("machine_list",), orders=("srtf",), sizes=("predicted",))
CORES: Final = 2
MOST_S: Final = 600.0
"""A replay that takes longer is stopped, and an error."""


def replay_rows() -> list[Row]:
    """Time the replay once on the clock on the wall; no row without TAUT_TRACES."""
    with tempfile.TemporaryDirectory() as scratch:
        if not philly_lake(Path(scratch)):
            return []
        asked = [sys.executable, "-m", "tests.benchmarks.scheduling.replay", scratch]
        # As the `taut` command sets it: idle threads of XGBoost would spin while they wait for each other.
        passive = {**os.environ, "OMP_WAIT_POLICY": "passive"}
        told = subprocess.run(asked, check=True, stdout=subprocess.PIPE, text=True, timeout=MOST_S, env=passive)
    took = json.loads(told.stdout)
    what = f"full replay of Philly, srtf, predicted and exact sizes, models trained ({took['jobs']} jobs measured)"
    return [
        amount_row("f", what, [took["wall_s"]], unit=f"s on {CORES} cores", bar=Bar(side="under", value=60.0)),
        amount_row("f", "the same, of both cores together", [took["cpu_s"]], unit="s of a core"),
    ]


def main(folder: Path) -> None:
    """Replay once, and print what it took."""
    wall_s, cpu_s = time.perf_counter(), time.process_time()
    with Lake(folder) as lake:
        replays = replays_of(lake, PHILLY_TRACE, CONFIG, Context(threads=CORES))
        rows = replays.rows(detail=False, seed=CONFIG.seed)
    took = {"wall_s": time.perf_counter() - wall_s, "cpu_s": time.process_time() - cpu_s}
    print(json.dumps({**took, "jobs": max(int(str(row["jobs"])) for row in rows)}))


if __name__ == "__main__":
    main(Path(sys.argv[1]))
