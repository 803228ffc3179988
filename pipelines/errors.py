"""Errors of the `pipelines` package; `pipelines.cli` turns them into one line and an exit code.

PipelineError
├── BadUsage          arguments that cannot be meant (exit 2)
├── SourceError       published files that are absent, truncated or not in their format
│   └── MappingError  a mapping of own files that cannot be meant
├── LakeError         a lake that lacks what was asked, or is damaged
├── QueryRefused      SQL that `taut sql` does not run
├── FetchError        a download that failed or did not verify
├── SynthesisError    a calibration or a size no synthetic trace can be made from
├── TrainingError     data from which no model can be trained or judged
└── RegistryError     a tracking server or registry that refuses or lacks a model
"""


class PipelineError(Exception):
    """Base of every error this package raises on purpose."""


class BadUsage(PipelineError, ValueError):
    """Arguments that cannot be meant."""


class SourceError(PipelineError):
    """Published files that are absent, truncated or not in their format."""


class MappingError(SourceError):
    """A mapping of own files that cannot be meant."""


class LakeError(PipelineError):
    """A lake that lacks what was asked, or is damaged."""


class QueryRefused(PipelineError):
    """SQL that `taut sql` does not run."""


class FetchError(PipelineError):
    """A download that failed or did not verify."""


class SynthesisError(PipelineError):
    """A calibration or a size no synthetic trace can be made from."""


class TrainingError(PipelineError):
    """Data from which no model can be trained or judged."""


class RegistryError(PipelineError):
    """A tracking server or registry that refuses or lacks a model."""
