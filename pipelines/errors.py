"""Errors of the `pipelines` package; `pipelines.cli` prints each as one line and exits with its code.

PipelineError
├── BadUsage          invalid arguments or settings (exit 2)
├── SourceError       input files that are missing, truncated or in another format
│   └── MappingError  an invalid mapping file for `taut ingest generic`
├── LakeError         a lake that is damaged or lacks the requested data
├── QueryRefused      SQL text that `taut sql` rejects
├── FetchError        a download that failed or did not verify
├── ConnectError      a system of a live cluster that fails or gives an invalid answer
├── SynthesisError    an invalid calibration or size of a synthetic trace
├── TrainingError     job data that do not suffice to train or evaluate a model
├── EngineError       processes or a cluster that failed while they ran units of work
├── RegistryError     an MLflow server that fails, or whose registry lacks a model
└── Busy              another process does the same work and holds its lock
"""

from collections.abc import Iterable
from difflib import get_close_matches

__all__ = [
    "BadUsage",
    "Busy",
    "ConnectError",
    "EngineError",
    "FetchError",
    "LakeError",
    "MappingError",
    "PipelineError",
    "QueryRefused",
    "RegistryError",
    "SourceError",
    "SynthesisError",
    "TrainingError",
    "meant",
]


class PipelineError(Exception):
    """Base class of all errors that this package raises itself."""


class BadUsage(PipelineError, ValueError):
    """Invalid arguments or settings."""


class SourceError(PipelineError):
    """Input files that are missing, truncated or in another format."""


class MappingError(SourceError):
    """An invalid mapping file for `taut ingest generic`."""


class LakeError(PipelineError):
    """A damaged lake, or one that lacks the requested data."""


class QueryRefused(PipelineError):
    """SQL text that `taut sql` rejects."""


class FetchError(PipelineError):
    """A download that failed or did not verify."""


class ConnectError(PipelineError):
    """A system of a live cluster (Slurm, Prometheus, Kubernetes) that fails or gives an invalid answer."""


class SynthesisError(PipelineError):
    """An invalid calibration or size of a synthetic trace."""


class TrainingError(PipelineError):
    """Job data that do not suffice to train or evaluate a model."""


class EngineError(PipelineError):
    """Processes or a cluster that failed while they ran units of work."""


class RegistryError(PipelineError):
    """An MLflow server that fails, or whose registry lacks a model."""


class Busy(PipelineError):
    """Another process does the same work and holds its lock."""


def meant(given: str, known: Iterable[str]) -> str:
    """Return a question with the known name nearest to a wrong name; empty if no name is near.

    >>> meant("pai-snth", ["philly", "pai-synth"])
    "; did you mean 'pai-synth'?"
    """
    return "".join(f"; did you mean {name!r}?" for name in get_close_matches(given, list(known), n=1))
