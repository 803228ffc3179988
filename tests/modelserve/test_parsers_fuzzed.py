"""Every parser of untrusted input against altered inputs: it parses, or raises the error that it documents.

`make fuzz` draws 10^6 inputs for each parser (TAUT_FUZZ_INPUTS), the slow suite a small share.
"""

import asyncio
import json
import os
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st
from pydantic import ValidationError
from uvicorn.server import ServerState

from modelserve.api.app import OPERATIONS
from modelserve.api.bodies import JsonBody
from modelserve.api.problems import Refusal
from modelserve.bundle.boosters import load_booster
from modelserve.bundle.bundle import read_bundle
from modelserve.bundle.champions import Pointer, pointer_file, read_pointer
from modelserve.errors import BundleError
from modelserve.server.connection import BoundedConfig, Connection, Limits
from pipelines.errors import PipelineError
from pipelines.lake.generic.mapping import read_mapping
from tests.modelserve.api.conftest import job

pytestmark = pytest.mark.slow

FUZZED = settings(
    max_examples=int(os.environ.get("TAUT_FUZZ_INPUTS", "400")),
    deadline=None,
    database=None,
    phases=(Phase.generate,),
    suppress_health_check=list(HealthCheck),
)
TOKENS = [b"\0", b"\r\n", b"\r\n\r\n", b'"', b"{", b"[" * 200, b"}", b"NaN", b"1e999", b"-1", b"\xff", b":", b"\\u0000",
          b"null", b"content-length: 9\r\n", b"transfer-encoding: chunked\r\n", b"host: b\r\n", b"=",
          b"a." * 50]  # fmt: skip
EDITS = st.lists(
    st.tuples(st.integers(0, 10_000), st.integers(0, 12), st.sampled_from(TOKENS) | st.binary(max_size=6)), max_size=5
)
HEAD = b"POST /v1/predictions?x=1 HTTP/1.1\r\nhost: a\r\nauthorization: Bearer t\r\ncontent-length: 2\r\nx: y\r\n\r\n{}"
BODY = {"trace": "pai", "jobs": [job(), job("b")]}
MAPPING = b"""
[jobs]
file = "{cluster}.csv"

[jobs.columns]
job_id = "job_id"
submit_ts = { column = "submission_time", time = "epoch_s" }
start_ts = { column = "submission_time", time = "epoch_s" }
run_s = "duration"
req_gpus = "num_gpu"
"""


def altered(data: bytes, edits: list[tuple[int, int, bytes]]) -> bytes:
    """Return the bytes with parts replaced: each edit is a place, the number of bytes dropped there, and new ones."""
    for place, dropped, new in edits:
        at = place % (len(data) + 1)
        data = data[:at] + new + data[at + dropped :]
    return data


def either(parse: Callable[[], object], *expected: type[Exception]) -> None:
    with suppress(*expected):
        parse()


@given(edits=EDITS, cuts=st.lists(st.integers(1, 200), max_size=4))
@FUZZED
def test_request_heads(edits: list[Any], cuts: list[int]) -> None:
    asyncio.run(_connection_takes(altered(HEAD, edits), cuts))


async def _connection_takes(data: bytes, cuts: list[int]) -> None:
    async def app(_scope: object, _receive: object, send: Any) -> None:
        await send({"type": "http.response.start", "status": 200, "headers": [(b"content-length", b"0")]})
        await send({"type": "http.response.body", "body": b""})

    errors: list[dict[str, Any]] = []
    asyncio.get_running_loop().set_exception_handler(lambda _, context: errors.append(context))
    config = BoundedConfig(app, limits=Limits(head_s=1, body_s=1, unread_s=1, connections=9))
    config.load()
    connection = Connection(config, ServerState(), {})
    transport = Transport()
    connection.connection_made(transport)  # type: ignore[arg-type]  # what a connection calls of a transport
    while data and not transport.closed:
        size = cuts.pop() if cuts else len(data)
        connection.data_received(data[:size])
        data = data[size:]
        await asyncio.sleep(0)
    for _ in range(3):
        await asyncio.sleep(0)
    connection.connection_lost(None)
    assert errors == []
    assert not config.half_open
    assert not config.idle


class Transport:
    """What a connection needs of a transport; what is written is dropped."""

    closed = False

    def close(self) -> None:
        self.closed = True

    abort = close

    def is_closing(self) -> bool:
        return self.closed

    def get_extra_info(self, name: str, default: object = None) -> object:
        return ("127.0.0.1", 1) if name in ("peername", "sockname") else default

    def get_write_buffer_size(self) -> int:
        return 0

    def write(self, data: bytes) -> None: ...
    def pause_reading(self) -> None: ...
    def resume_reading(self) -> None: ...
    def set_protocol(self, protocol: object) -> None: ...


BODIES = {each.body.__name__: JsonBody(each.body) for each in OPERATIONS if each.body is not None}


@given(name=st.sampled_from(sorted(BODIES)), edits=EDITS)
@FUZZED
def test_json_bodies(name: str, edits: list[Any]) -> None:
    data = altered(json.dumps(BODY).encode(), edits)
    either(lambda: BODIES[name]._large(data), ValidationError, Refusal)


@given(edits=EDITS)
@FUZZED
def test_pointers(edits: list[Any], tmp_path_factory: pytest.TempPathFactory) -> None:
    folder = tmp_path_factory.getbasetemp() / "pointed"
    file = pointer_file(folder, "runtime.pai.ctr")
    file.parent.mkdir(parents=True, exist_ok=True)
    whole = Pointer(name="runtime.pai.ctr", version="1", alias="champion", run_id=None, digest="0" * 64)
    file.write_bytes(altered(whole.model_dump_json().encode(), edits))
    either(lambda: read_pointer(folder, "runtime.pai.ctr"), BundleError)


@given(edits=EDITS)
@FUZZED
def test_mapping_files(edits: list[Any], tmp_path_factory: pytest.TempPathFactory) -> None:
    file = tmp_path_factory.getbasetemp() / "fuzzed.toml"
    file.write_bytes(altered(MAPPING, edits))
    either(lambda: read_mapping(file), PipelineError)


@given(edits=EDITS)
@FUZZED
def test_model_files(model: tuple[bytes, dict[str, int]], edits: list[Any]) -> None:
    whole, shape = model
    data = altered(whole, edits)
    either(lambda: load_booster(data, **shape, name="model"), BundleError)


@pytest.fixture(scope="module")
def model(small_bundles: dict[str, Path]) -> tuple[bytes, dict[str, int]]:
    """Return a model file, and the numbers of its features and outputs."""
    bundle = read_bundle(small_bundles["runtime"])
    [target] = bundle.card.targets
    shape = {"features": len(bundle.contract.names), "outputs": len(bundle.card.quantiles)}
    return (small_bundles["runtime"] / "models" / f"{target}.ubj").read_bytes(), shape


def test_the_inputs_are_valid_before_they_are_altered(model: tuple[bytes, dict[str, int]], tmp_path: Path) -> None:
    load_booster(model[0], **model[1], name="model")
    (tmp_path / "m.toml").write_bytes(MAPPING)
    read_mapping(tmp_path / "m.toml")
    body = {name: BODY[name] for name in ("trace", "jobs")}
    assert BODIES["PredictBody"]._large(json.dumps(body).encode())
