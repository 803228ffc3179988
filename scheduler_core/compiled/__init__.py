"""The event loop compiled (numba): the schedules of `scheduler_core.plain`, hundreds of thousands of jobs a second.

Importing this imports numba; `scheduler_core.simulator` does so when it first needs it.
"""

from scheduler_core.compiled.run import run_compiled

__all__ = ["run_compiled"]
