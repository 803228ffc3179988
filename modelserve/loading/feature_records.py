"""The feature rows that a model received for the jobs of a call, and their encoding for the log of answers.

Made by `modelserve.calls` from the rows of `served`, and decoded when an answer is explained.
"""

import json
import struct
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
import numpy.typing as npt
from pydantic_core import to_json

from features.references import HISTORY_FORECASTS
from modelserve.errors import BadRequest
from scheduler_core.types import FloatArray, IntArray

__all__ = ["Scored", "decode_features", "encode_features"]

MAGIC: Final = b"TAUT-F2\n"
FIRST_MAGIC: Final = b"TAUT-F1\n"
"""Mark of records of earlier releases, which have neither shifts nor evidence."""
EVIDENCE: Final = len(HISTORY_FORECASTS)
_LENGTH: Final = struct.Struct("<I")


@dataclass(frozen=True, slots=True, kw_only=True)
class Scored:
    """Feature rows (n, k) that one model received for n jobs of one call.

    `model` is the reference of the model (`<name>@<version>`), `digest` the digest of its bundle. `rows` (n,) is the
    position of each job in the call, and `runs` (n,) the job's number of measured runs. `reference_log_s`, `evidence`
    and `versions` are as in `features.rows`; `versions` is None in rows decoded from the log. `shift_log_s` (n, 2) is
    what the combination adds to the trees' answer (`modelserve.bundle.combination`), 0 for a model without one.
    `outputs` are those of `ServedModel.outputs` if the combination needed them; they are not logged.
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
    outputs: Mapping[str, FloatArray] | None = None

    @property
    def base_log_s(self) -> FloatArray:
        """What is added to the trees' output (n, 2): the reference and the shift, in log seconds."""
        return self.reference_log_s + self.shift_log_s


def encode_features(scored: Sequence[Scored]) -> bytes:
    """Encode feature rows as bytes: a JSON header, then the arrays of each model, little-endian (see `_layout`)."""
    header = to_json([[each.model, each.digest, *each.matrix.shape] for each in scored])
    parts = [MAGIC, _LENGTH.pack(len(header)), header]
    for each in scored:
        parts += [
            each.matrix.tobytes(),
            each.reference_log_s.tobytes(),
            each.rows.tobytes(),
            each.runs.tobytes(),
            each.shift_log_s.tobytes(),
            np.asarray(each.evidence, dtype="<i8").tobytes(),
        ]
    return b"".join(parts)


def decode_features(blob: bytes) -> list[Scored]:
    """Decode feature rows that `encode_features` wrote.

    Raises
    ------
    BadRequest
        The bytes have another format.

    Examples
    --------
    >>> decode_features(encode_features([]))
    []
    """
    first_release = blob[: len(MAGIC)] == FIRST_MAGIC
    if blob[: len(MAGIC)] != MAGIC and not first_release:
        raise BadRequest(f"features: found {blob[: len(MAGIC)]!r}, expected {MAGIC!r}; the record has another format")
    try:
        (length,) = _LENGTH.unpack_from(blob, len(MAGIC))
        at = len(MAGIC) + _LENGTH.size
        header, at = json.loads(blob[at : at + length]), at + length
        found = []
        for model, digest, count, width in header:
            parts = []
            for dtype, shape in _layout(count, width)[: 4 if first_release else None]:
                size = int(np.prod(shape)) * dtype.itemsize
                # Copy, because compiled trees need writable arrays.
                parts.append(np.frombuffer(blob, dtype, int(np.prod(shape)), at).reshape(shape).copy())
                at += size
            matrix, reference, rows, runs = parts[:4]
            shift, evidence = parts[4:] or (np.zeros((count, 2)), np.zeros((count, EVIDENCE), dtype=np.int64))
            found.append(
                Scored(
                    model=model,
                    digest=digest,
                    rows=rows,
                    matrix=matrix,
                    reference_log_s=reference,
                    shift_log_s=shift,
                    evidence=evidence,
                    runs=runs,
                )
            )
    except (ValueError, struct.error) as error:
        raise BadRequest(f"features: found a record cut short ({error}), expected a complete record") from error
    return found


def _layout(count: int, width: int) -> list[tuple[np.dtype[np.generic], tuple[int, ...]]]:
    return [
        (np.dtype("<f4"), (count, width)),
        (np.dtype("<f8"), (count, 2)),
        (np.dtype("<i8"), (count,)),
        (np.dtype("<i8"), (count,)),
        (np.dtype("<f8"), (count, 2)),
        (np.dtype("<i8"), (count, EVIDENCE)),
    ]
