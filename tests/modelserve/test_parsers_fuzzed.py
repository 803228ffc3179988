"""Every parser of untrusted input against altered inputs: it parses, or raises the error that it documents.

Hypothesis draws seeds and structure, `fuzzing` alters many inputs from each. `make fuzz` takes 10^6 inputs for each
parser (TAUT_FUZZ_INPUTS), the slow suite a small share.
"""

import asyncio
import copy
import json
import os
import random
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
from modelserve.api.problems import Refusal, invalid_body
from modelserve.bundle.boosters import load_booster
from modelserve.bundle.bundle import read_bundle
from modelserve.bundle.champions import Pointer, pointer_file, read_pointer
from modelserve.errors import BundleError
from modelserve.server.connection import BoundedConfig, Connection
from pipelines.errors import PipelineError
from pipelines.lake.generic.mapping import read_mapping
from tests.modelserve.api.conftest import job
from tests.modelserve.api.test_conformance import FITTING
from tests.modelserve.fuzzing import BATCH, parse_altered

pytestmark = pytest.mark.slow

INPUTS = int(os.environ.get("TAUT_FUZZ_INPUTS", "2000"))
FUZZED = settings(
    max_examples=max(1, INPUTS // BATCH),
    deadline=None,
    database=None,
    phases=(Phase.generate,),
    suppress_health_check=list(HealthCheck),
)
SEEDS = st.integers(0, 2**64 - 1)
VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=8), inner, max_size=4),
)
HEAD = b"POST /v1/predictions?x=1 HTTP/1.1\r\nhost: a\r\nauthorization: Bearer t\r\ncontent-length: 2\r\nx: y\r\n\r\n{}"
HEADS = [
    HEAD,
    HEAD * 2,
    b"GET /healthz HTTP/1.1\r\nhost: [::1]:8000\r\nconnection: close\r\naccept: */*\r\n\r\n",
    b"GET / HTTP/1.0\r\n\r\n",
    b"POST /v1/feedback HTTP/1.1\r\nhost: a\r\ntransfer-encoding: chunked\r\n\r\n2;a=b\r\n{}\r\n0\r\nx: y\r\n\r\n",
    b"GET / HTTP/1.1\r\nhost: a\r\nconnection: upgrade\r\nupgrade: h2c\r\nhttp2-settings: AAMAAABk\r\n\r\n",
    b"POST / HTTP/1.1\r\nhost: a\r\nexpect: 100-continue\r\ncontent-length: 9\r\n\r\n",
]
EXAMPLES: list[object] = [
    *({"trace": "pai", "jobs": [job(), job("b")], **more} for more in ({}, {"outputs": ["run_time"]})),
    {"trace": "pai", "job": job(), "top": 3, "quantile": "p90"},
    {"trace": "pai", "job": job(), "resource": "gpus", "points": 5},
    {"trace": "pai", "task_type": "ctr", "group": "g0", "mode": "enforce"},
    {"trace": "pai", "reset": True},
    *FITTING.values(),
]
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
MAPPINGS = [
    MAPPING,
    b"""
cluster = "main"
[jobs]
format = "sqlite"
query = "SELECT * FROM jobs"
zone = "Europe/Berlin"
nulls = ["", "NA"]
[jobs.columns]
job_id.column = "id"
submit_ts = { column = "t", time = "%d.%m.%Y %H:%M:%S", zone = "UTC" }
status = { column = "s", values = { OK = "completed" }, otherwise = "failed" }
req_mem_gib = { column = "mem", unit = "MB", per = "instances", default = 1.5 }
[usage.columns]
mem_max_gib = { column = "rss", unit = "kB" }
[machines]
file = "m.csv"
header = false
[machines.columns]
machine = 1
gpus = { column = 2 }
""",
]


def either(parse: Callable[[], object], *expected: type[Exception]) -> bool:
    """Return whether it parses; the expected errors refuse it."""
    with suppress(*expected):
        parse()
        return True
    return False


@given(seed=SEEDS, cuts=st.lists(st.integers(1, 200), max_size=4))
@FUZZED
def test_request_heads(seed: int, cuts: list[int]) -> None:
    with asyncio.Runner() as runner:
        errors: list[dict[str, Any]] = []
        runner.get_loop().set_exception_handler(lambda _, context: errors.append(context))
        config = BoundedConfig(_app, head_s=1, body_s=1, most=9)
        config.load()

        def parse(data: bytes) -> None:
            runner.run(_connection_takes(config, data, list(cuts)))
            assert errors == []
            assert not config.half_open
            assert not config.idle

        parse_altered(HEADS, seed, parse)


async def _app(_scope: object, _receive: object, send: Any) -> None:
    await send({"type": "http.response.start", "status": 200, "headers": [(b"content-length", b"0")]})
    await send({"type": "http.response.body", "body": b""})


async def _connection_takes(config: BoundedConfig, data: bytes, cuts: list[int]) -> None:
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


@given(name=st.sampled_from(sorted(BODIES)), seed=SEEDS, value=VALUES)
@FUZZED
def test_json_bodies(name: str, seed: int, value: object) -> None:
    valid = [each for each in EXAMPLES if _parses(name, json.dumps(each).encode())]
    structured = [_with_value(each, value, seed) for each in valid or EXAMPLES]
    corpus = [json.dumps(each).encode() for each in [*structured, *valid, *EXAMPLES[:2]]]
    assert not _parses(name, b"")
    parse_altered(corpus, seed, lambda data: _parses(name, data))


def _parses(name: str, data: bytes) -> bool:
    """Return whether a body is valid; word the refusal of any other, as the routes do."""
    try:
        BODIES[name]._large(data)
    except ValidationError as error:
        return invalid_body(error).status < 0
    except Refusal:
        return False
    return True


def _with_value(example: object, value: object, seed: int) -> object:
    """Return a copy of an example with a value at a place that the seed chooses."""
    example = copy.deepcopy(example)
    at: Any = example
    rng = random.Random(seed)
    while True:
        key = rng.choice(list(at) if isinstance(at, dict) else range(len(at)))
        if not at[key] or not isinstance(at[key], dict | list) or rng.random() < 0.3:
            at[key] = value
            return example
        at = at[key]


@given(seed=SEEDS)
@FUZZED
def test_pointers(seed: int, tmp_path_factory: pytest.TempPathFactory) -> None:
    folder = tmp_path_factory.getbasetemp() / "pointed"
    file = pointer_file(folder, "runtime.pai.ctr")
    file.parent.mkdir(parents=True, exist_ok=True)
    whole = Pointer(name="runtime.pai.ctr", version="1", run_id=None, digest="0" * 64)

    def parse(data: bytes) -> bool:
        file.write_bytes(data)
        return either(lambda: read_pointer(folder, "runtime.pai.ctr"), BundleError)

    assert parse(whole.model_dump_json().encode())
    parse_altered([whole.model_dump_json().encode()], seed, parse)


@given(seed=SEEDS)
@FUZZED
def test_mapping_files(seed: int, tmp_path_factory: pytest.TempPathFactory) -> None:
    file = tmp_path_factory.getbasetemp() / "fuzzed.toml"

    def parse(data: bytes) -> bool:
        file.write_bytes(data)
        return either(lambda: read_mapping(file), PipelineError)

    assert any(map(parse, MAPPINGS))
    parse_altered(MAPPINGS, seed, parse)


@given(seed=SEEDS)
@FUZZED
def test_model_files(model: tuple[bytes, dict[str, int]], seed: int) -> None:
    whole, shape = model

    def parse(data: bytes) -> bool:
        return either(lambda: load_booster(data, **shape, name="model"), BundleError)

    assert parse(whole)
    parse_altered([whole], seed, parse)


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
    parsed = {name for name in BODIES if any(_parses(name, json.dumps(each).encode()) for each in EXAMPLES)}
    assert set(BODIES) - parsed == set()
