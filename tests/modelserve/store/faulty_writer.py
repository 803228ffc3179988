"""A process that stores feedback while the file system and the clock fail by seed; it prints what was acknowledged.

Run by `test_store_faults` with faults.c preloaded: `python faulty_writer.py FILE SEED FAULTS`.
"""

import contextlib
import ctypes
import random
import sys
from pathlib import Path

from sqlalchemy.exc import DBAPIError

from modelserve.errors import StoreError
from tests.modelserve.feedback_cases import ACCOUNTING, body, row, service_of

KINDS = ("write", "full", "short", "read", "sync", "slow", "clock", "unlink")
DAY_S = 86_400


def main(file: Path, seed: int, faults: int) -> None:
    shim, rng = ctypes.CDLL(None), random.Random(seed)
    variables = {name: ctypes.c_int.in_dll(shim, f"fault_{name}") for name in ("kind", "after", "sticks", "hits")}
    clock = ctypes.c_long.in_dll(shim, "fault_clock_s")
    service = service_of(f"sqlite:///{file}")

    def store(job_id: str) -> bool:
        try:
            service.take_feedback(body([row(job_id)]), ACCOUNTING)
        except StoreError:
            return False
        print("stored", job_id, flush=True)
        return True

    for number in range(faults):
        kind, away = rng.choice(KINDS), file.with_suffix(".away")
        if kind == "unlink":
            file.rename(away)
        elif kind == "clock":
            clock.value = rng.randint(-365, 365) * DAY_S
        else:
            variables["after"].value, variables["sticks"].value = rng.randint(0, 6), rng.randint(0, 1)
            variables["kind"].value = KINDS.index(kind) + 1
        with contextlib.suppress(StoreError, DBAPIError):
            acknowledged = store(f"during-{number}")
            if kind != "unlink":
                with service.store.engine.connect() as connection:  # checkpoints sync; commits of this store do not
                    connection.exec_driver_sql("COMMIT")
                    connection.exec_driver_sql("PRAGMA wal_checkpoint(TRUNCATE)")
        variables["kind"].value = 0
        clock.value = 0
        if kind == "unlink":
            away.rename(file)
            print("fault", kind, int(not acknowledged), flush=True)
        else:
            print("fault", kind, variables["hits"].value if kind != "clock" else 1, flush=True)
        variables["hits"].value = 0
        if not store(f"after-{number}"):
            print("broken after", kind, number, flush=True)


if __name__ == "__main__":
    main(Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3]))
