"""The event loop compiled with numba: the same schedules as `engine.plain`, hundreds of thousands of jobs a second.

Importing this package imports numba. Imported by `pipelines.simulation.engine.simulator` on first use.
"""

from pipelines.simulation.engine.compiled.run import run_compiled

__all__ = ["run_compiled"]
