"""Threads beside the calls: they let a call go first wherever both want the same processor.

Nothing is done in them here. Called by the threads that log, once, when they begin.
"""

import contextlib
import os
import sys
import threading
from typing import Final

NICENESS: Final = 10
"""A tenth of a call's share of a processor, where they have to share one."""


def give_way() -> None:
    """Let others go first from now on in this thread; where threads have no niceness of their own, nothing changes."""
    if sys.platform == "linux":  # where a thread is a process to the scheduler
        with contextlib.suppress(OSError):
            os.setpriority(os.PRIO_PROCESS, threading.get_native_id(), NICENESS)
