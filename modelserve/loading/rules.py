"""The compiled rules of placements; until a worker has loaded them, Python decides if it needs under half a minute.

If numba's cache lacks the rules, a process of low priority compiles them; in the worker this would delay calls.
"""

import os
import subprocess
import sys
from threading import Thread

from scheduler_core.decisions import load_rules

__all__ = ["prepare"]


def prepare() -> None:
    """Load the rules into a worker, after they are compiled."""
    if not load_rules(compiling=False):
        command = [sys.executable, "-P", "-m", __name__]
        with subprocess.Popen(command, stdin=subprocess.PIPE) as compiler:  # noqa: S603  # our own module
            compiler.wait()
        load_rules()


if __name__ == "__main__":
    os.nice(10)
    # The read returns when the pipe closes, as the worker has ended.
    Thread(target=lambda: (os.read(0, 1), os._exit(1)), daemon=True).start()
    load_rules()
