"""Lower the priority of background threads, so that calls get the processor first."""

import contextlib
import os
import sys
import threading
from typing import Final

__all__ = ["give_way"]

NICENESS: Final = 10
"""Niceness of background threads: about a tenth of the CPU time that a normal thread gets on a busy core."""


def give_way() -> None:
    """Lower the priority of this thread on Linux; do nothing elsewhere."""
    if sys.platform == "linux":  # only Linux has a niceness for each thread
        with contextlib.suppress(OSError):
            os.setpriority(os.PRIO_PROCESS, threading.get_native_id(), NICENESS)
