"""Errors of the `pipelines` package; `pipelines.cli` turns them into one line and an exit code.

PipelineError
├── BadUsage          invalid arguments or settings (exit 2)
├── SourceError       input files that are missing, truncated or in another format
│   └── MappingError  an invalid mapping of own files
├── LakeError         a lake that is damaged or lacks the requested data
├── QueryRefused      SQL that `taut sql` does not run
├── FetchError        a download that failed or did not verify
├── SynthesisError    an invalid calibration or size of a synthetic trace
├── TrainingError     data from which no model can be trained or evaluated
└── RegistryError     a tracking server or registry that fails or lacks a model
"""

__all__ = [
    "BadUsage",
    "FetchError",
    "LakeError",
    "MappingError",
    "PipelineError",
    "QueryRefused",
    "RegistryError",
    "SourceError",
    "SynthesisError",
    "TrainingError",
]


class PipelineError(Exception):
    """Base of every error this package raises on purpose."""


class BadUsage(PipelineError, ValueError):
    """Invalid arguments or settings."""


class SourceError(PipelineError):
    """Input files that are missing, truncated or in another format."""


class MappingError(SourceError):
    """An invalid mapping of own files."""


class LakeError(PipelineError):
    """A lake that is damaged or lacks the requested data."""


class QueryRefused(PipelineError):
    """SQL that `taut sql` does not run."""


class FetchError(PipelineError):
    """A download that failed or did not verify."""


class SynthesisError(PipelineError):
    """An invalid calibration or size of a synthetic trace."""


class TrainingError(PipelineError):
    """Data from which no model can be trained or evaluated."""


class RegistryError(PipelineError):
    """A tracking server or registry that fails or lacks a model."""
