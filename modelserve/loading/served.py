"""A loaded model (bundle, compiled trees, builder of feature rows, history), and feature rows with their encoding.

Made by `modelserve.loading.models`, which decides which version serves. Called by `modelserve.calls`, and by
`modelserve.learning` for drift.
"""

import json
import math
import struct
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
import numpy.typing as npt
from pydantic_core import to_json

from features.online import JobAsked, OnlineHistory
from features.rows import RowBuilder
from features.vocabulary import ROLE_WHOLE_JOB
from modelserve.bundle.bundle import Bundle
from modelserve.bundle.trees.compiled import CompiledTrees
from modelserve.errors import BadRequest, BundleError
from scheduler_core.types import FloatArray, IntArray

__all__ = ["Scored", "ServedModel", "decode_features", "encode_features"]

MAGIC: Final = b"TAUT-F1\n"
_LENGTH: Final = struct.Struct("<I")


@dataclass(frozen=True, slots=True, kw_only=True)
class Scored:
    """Feature rows (n, k) that one model received for n jobs of one call.

    `model` is the reference of the model (`<name>@<version>`), `digest` the digest of its bundle. `rows` (n,) is the
    position of each job in the call, and `runs` (n,) the job's number of measured runs. `reference_log_s` and
    `versions` are as in `features.rows`; `versions` is None in rows decoded from the log.
    """

    model: str
    digest: str
    rows: IntArray
    matrix: npt.NDArray[np.float32]
    reference_log_s: FloatArray
    runs: IntArray
    versions: tuple[int, int] | None = None


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
    if blob[: len(MAGIC)] != MAGIC:
        raise BadRequest(f"features: found {blob[: len(MAGIC)]!r}, expected {MAGIC!r}; the record has another format")
    try:
        (length,) = _LENGTH.unpack_from(blob, len(MAGIC))
        at = len(MAGIC) + _LENGTH.size
        header, at = json.loads(blob[at : at + length]), at + length
        found = []
        for model, digest, count, width in header:
            parts = []
            for dtype, shape in _layout(count, width):
                size = int(np.prod(shape)) * dtype.itemsize
                # Copy, because compiled trees need writable arrays.
                parts.append(np.frombuffer(blob, dtype, int(np.prod(shape)), at).reshape(shape).copy())
                at += size
            matrix, reference, rows, runs = parts
            found.append(
                Scored(model=model, digest=digest, rows=rows, matrix=matrix, reference_log_s=reference, runs=runs)
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
    ]


@dataclass(frozen=True, slots=True, kw_only=True)
class ServedModel:
    """One loaded version of a model; `trees` are by target.

    `reference` is the name and version of the model in responses, such as `runtime.pai.ctr@7`.
    `history` may be shared with other models of the trace. The bundle keeps only the newest job of its own history, to
    save memory.
    """

    bundle: Bundle
    reference: str
    trees: Mapping[str, CompiledTrees]
    rows: RowBuilder
    history: OnlineHistory

    @classmethod
    def of(cls, bundle: Bundle, history: OnlineHistory) -> "ServedModel":
        """Compile the trees of a bundle, and compare their outputs with XGBoost's.

        Raises
        ------
        BundleError
            The outputs differ.
        """
        trees = {target: CompiledTrees.made_of(forest) for target, forest in bundle.forests.items()}
        for target, compiled in trees.items():
            try:
                compiled.check(bundle.boosters[target], len(bundle.contract.names))
            except BundleError as error:
                raise BundleError(f"{bundle.reference}/{target}: {error}") from error
        rows = RowBuilder.of(bundle.contract, relative=bundle.card.relative)
        return cls(bundle=bundle, reference=bundle.reference, trees=trees, rows=rows, history=history)

    def margins(self, target: str, matrix: npt.NDArray[np.float32]) -> npt.NDArray[np.float64]:
        """Return the outputs (n, outputs) of a target's trees for a matrix (n, k), before calibration.

        Compiled trees give the same outputs as XGBoost and are faster: 13 instead of 320 microseconds for a single row,
        12 instead of 24 for each of thousands of rows.
        """
        return self.trees[target].rows(matrix)


def warm(model: ServedModel) -> None:
    """Predict the newest job of the model's history, so that the first call does not wait for compilation.

    Raises
    ------
    BundleError
        The prediction is not a finite number.
    """
    job = known_job(model.bundle)
    rows = model.rows.rows([job], model.history)
    asked = np.array([[job.req_cpu_cores, job.req_mem_gib, job.req_gpus]])
    matrix = model.rows.with_requests(rows, [job], np.zeros(1, dtype=np.int64), asked)
    model.history.measured_runs(job)
    for target in model.trees:
        answer = model.margins(target, matrix)
        if not np.isfinite(answer).all():
            raise BundleError(f"{model.reference}/{target}: a known job is answered {answer}, expected numbers")


def known_job(bundle: Bundle) -> JobAsked:
    """Return a job like the newest in a bundle's history; if the history is empty, a job of unknown user and group."""
    newest = bundle.history.frame.tail(1).to_dicts()
    held = newest[0] if newest else {}
    gpus = held.get("req_gpus")
    submitted = held.get("submit_ts") or bundle.card.until
    return JobAsked(
        trace=bundle.card.trace,
        cluster=held.get("cluster"),
        job_id="warm",
        role=held.get("role") or ROLE_WHOLE_JOB,
        user=held.get("user"),
        vc=held.get("vc"),
        group=held.get("group"),
        workload=None,
        task_type=bundle.card.task_type,
        gpu_type=None,
        submit_us=round(submitted.timestamp() * 1e6),
        instances=held.get("instances") or 1,
        req_cpu_cores=1.0,
        req_mem_gib=1.0,
        req_gpus=math.nan if gpus is None else float(gpus),
        time_limit_s=math.nan,
        priority=math.nan,
    )
