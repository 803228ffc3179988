"""The simulation engine compiled with numba: the same schedules as `engine.plain`, but simulated much faster.

Importing this package imports numba. Imported by `pipelines.simulation.engine.simulator` on first use.
"""

from pipelines.simulation.engine.compiled.run import run_compiled

__all__ = ["run_compiled"]
