"""Lower the priority of background threads, so that calls get the processor first.

Called once by each logging thread and by the writer process when they start.
"""

import contextlib
import os
import sys
import threading
from typing import Final

NICENESS: Final = 10
"""About a tenth of a call's share of a shared processor."""


def give_way() -> None:
    """Lower the priority of this thread; does nothing where threads have no niceness of their own."""
    if sys.platform == "linux":  # where a thread is a process to the scheduler
        with contextlib.suppress(OSError):
            os.setpriority(os.PRIO_PROCESS, threading.get_native_id(), NICENESS)
