"""What models were shown for an answer, as bytes: feature matrices, references and evidence, for the log of answers.

Plain arrays behind a JSON header; no pickle, no features made and no model asked. Called by `modelserve.calls.sight`,
`modelserve.calls.replay` and `modelserve.learning.drift`.
"""

import json
import struct
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
import numpy.typing as npt
from pydantic_core import to_json

from modelserve.errors import BadRequest
from scheduler_core.types import FloatArray, IntArray

MAGIC: Final = b"TAUT-F1\n"
_LENGTH: Final = struct.Struct("<I")


@dataclass(frozen=True, slots=True, kw_only=True)
class Scored:
    """The rows that one model was shown: the jobs as they were submitted, in the model's own features.

    `model` is the reference as it is cited, `digest` names the bundle's every byte. `rows` says which job of the call
    each row is (n,), `runs` how many measured runs stand behind it. `reference_log_s` and `versions` are as in
    `features.rows`; the versions are logged with the context, and None when read from the log.
    """

    model: str
    digest: str
    rows: IntArray
    matrix: npt.NDArray[np.float32]
    reference_log_s: FloatArray
    runs: IntArray
    versions: tuple[int, int] | None = None


def encode_features(scored: Sequence[Scored]) -> bytes:
    """Write what models were shown: a header, then each matrix, reference, row numbers and counts, little-endian."""
    header = to_json([[each.model, each.digest, *each.matrix.shape] for each in scored])
    parts = [MAGIC, _LENGTH.pack(len(header)), header]
    for each in scored:
        parts += [
            each.matrix.tobytes(),
            each.reference_log_s.tobytes(),
            each.rows.tobytes(),
            each.runs.tobytes(),
        ]
    return b"".join(parts)


def decode_features(blob: bytes) -> list[Scored]:
    """Read what `encode_features` wrote.

    Raises
    ------
    BadRequest
        The bytes are not what was written.

    Examples
    --------
    >>> decode_features(encode_features([]))
    []
    """
    if blob[: len(MAGIC)] != MAGIC:
        raise BadRequest(f"features: found {blob[: len(MAGIC)]!r}, expected {MAGIC!r}; the record is not of this kind")
    try:
        (length,) = _LENGTH.unpack_from(blob, len(MAGIC))
        at = len(MAGIC) + _LENGTH.size
        header, at = json.loads(blob[at : at + length]), at + length
        found = []
        for model, digest, count, width in header:
            parts = []
            for dtype, shape in _layout(count, width):
                size = int(np.prod(shape)) * dtype.itemsize
                # A copy: compiled trees take no array that cannot be written to.
                parts.append(np.frombuffer(blob, dtype, int(np.prod(shape)), at).reshape(shape).copy())
                at += size
            matrix, reference, rows, runs = parts
            found.append(
                Scored(model=model, digest=digest, rows=rows, matrix=matrix, reference_log_s=reference, runs=runs)
            )
    except (ValueError, struct.error) as error:
        raise BadRequest(f"features: found a record cut short ({error}), expected what was written") from error
    return found


def _layout(count: int, width: int) -> list[tuple[np.dtype[np.generic], tuple[int, ...]]]:
    return [
        (np.dtype("<f4"), (count, width)),
        (np.dtype("<f8"), (count, 2)),
        (np.dtype("<i8"), (count,)),
        (np.dtype("<i8"), (count,)),
    ]
