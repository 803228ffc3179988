"""The feature rows that a model received for the jobs of a call, and their encoding for the log of answers."""

import json
import struct
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import numpy.typing as npt
from pydantic_core import to_json

from features.references import HISTORY_FORECASTS
from modelserve.errors import BadRequest
from scheduler_core.types import FloatArray, IntArray

__all__ = ["Scored", "decode_features", "encode_features"]

MAGIC: Final = b"TAUT-F2\n"
_LENGTH: Final = struct.Struct("<I")
_PAIRS: Final = ("<f8", (2,))
_LAYOUT: Final[Mapping[str, tuple[str, tuple[int, ...]]]] = {
    "reference_log_s": _PAIRS,
    "rows": ("<i8", ()),
    "runs": ("<i8", ()),
    "shift_log_s": _PAIRS,
    "evidence": ("<i8", (len(HISTORY_FORECASTS),)),
}
"""The arrays that follow a model's matrix, with the type and shape of a job's values."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Scored:
    """Feature rows (n, k) that one model received for n jobs of one call.

    `model` is the reference of the model (`<name>@<version>`), `digest` the digest of its bundle. `rows` (n,) is the
    position of each job in the call, and `runs` (n,) the job's number of measured runs. `reference_log_s`, `evidence`
    and `versions` are as in `features.rows`; `versions` is None in rows decoded from the log. `shift_log_s` (n, 2) is
    what the combination adds to the trees' answer (`modelserve.bundle.combination`), 0 for a model without one.
    `extremes` are as in `features.rows`, `outputs` those of `ServedModel.outputs` if the combination needed them;
    neither is logged.
    """

    model: str
    digest: str
    rows: IntArray
    matrix: npt.NDArray[np.float32]
    reference_log_s: FloatArray
    shift_log_s: FloatArray
    evidence: IntArray
    runs: IntArray
    versions: tuple[int, int] | None = None
    extremes: FloatArray | None = None
    outputs: Mapping[str, FloatArray] | None = None

    @property
    def base_log_s(self) -> FloatArray:
        """What is added to the trees' output (n, 2): the reference and the shift, in log seconds."""
        return self.reference_log_s + self.shift_log_s


def encode_features(scored: Sequence[Scored]) -> bytes:
    """Encode feature rows as bytes: a JSON header, then the arrays of each model, little-endian (see `_LAYOUT`)."""
    header = to_json([[each.model, each.digest, *each.matrix.shape] for each in scored])
    parts = [MAGIC, _LENGTH.pack(len(header)), header]
    for each in scored:
        parts.append(each.matrix.tobytes())
        parts += [np.asarray(getattr(each, name), dtype=dtype).tobytes() for name, (dtype, _) in _LAYOUT.items()]
    return b"".join(parts)


def decode_features(blob: bytes) -> list[Scored]:
    """Decode feature rows that `encode_features` wrote.

    >>> decode_features(encode_features([]))
    []
    """
    if not blob.startswith(MAGIC):
        raise BadRequest(f"features: found {blob[: len(MAGIC)]!r}, expected {MAGIC!r}; the record has another format")
    at = len(MAGIC) + _LENGTH.size

    def array(dtype: str, shape: tuple[int, ...]) -> npt.NDArray[Any]:  # of the given type
        nonlocal at
        size = int(np.prod(shape))
        # Copy, because compiled trees need writable arrays.
        values = np.frombuffer(blob, dtype, size, at).reshape(shape).copy()
        at += values.nbytes
        return values

    try:
        (length,) = _LENGTH.unpack_from(blob, len(MAGIC))
        header, at = json.loads(blob[at : at + length]), at + length
        return [
            Scored(
                model=model,
                digest=digest,
                matrix=array("<f4", (count, width)),
                **{name: array(dtype, (count, *shape)) for name, (dtype, shape) in _LAYOUT.items()},  # type: ignore[arg-type]  # `_LAYOUT` names the arrays alone
            )
            for model, digest, count, width in header
        ]
    except (ValueError, struct.error) as error:
        raise BadRequest(f"features: found a record cut short ({error}), expected a complete record") from error
