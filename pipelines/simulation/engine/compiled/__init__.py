"""The event loop compiled with numba: the same schedules as `engine.plain`, hundreds of thousands of jobs a second.

Importing this imports numba; `pipelines.simulation.engine.simulator` does so when it first needs it.
"""

from pipelines.simulation.engine.compiled.run import run_compiled

__all__ = ["run_compiled"]
