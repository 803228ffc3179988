"""`taut serve` and `taut token`: settings that are said plainly, secrets that are not, bad ones named, exit 2."""

import hashlib
import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from modelserve.callers import Token, caller_of
from pipelines.cli import app
from pipelines.cli.serving import serve_settings

DIGEST = hashlib.sha256(b"s").hexdigest()
ENTRY = json.dumps([{"name": "sched", "sha256": DIGEST, "scopes": ["predict"], "traces": ["pai"]}])


@pytest.fixture(autouse=True)
def _elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


@pytest.mark.parametrize(
    ("variable", "value", "said"),
    [
        ("PORT", "x", "TAUT_SERVE_PORT is 'x'"),
        ("WORKERS", "0", "TAUT_SERVE_WORKERS is '0'"),
        ("TOKENS", "{", "TAUT_SERVE_TOKENS is not valid JSON"),
        ("TOKENS", '[{"name":"a","sha256":"short-secret","scopes":["predict"]}]', "TAUT_SERVE_TOKENS[0][sha256]"),
        ("TYPES", '{"ctr": {"theta": 7}}', "TAUT_SERVE_TYPES[ctr][theta]"),
        ("HOST", "0.0.0.0", "set TAUT_SERVE_TOKENS"),
        ("TOKEN", ENTRY, "TAUT_SERVE_TOKEN: no such setting"),
        ("TLS_KEY", "key.pem", "tls_certificate and tls_key"),
    ],
)
def test_bad_settings_are_named(monkeypatch: pytest.MonkeyPatch, variable: str, value: str, said: str) -> None:
    monkeypatch.setenv(f"TAUT_SERVE_{variable}", value)

    result = CliRunner().invoke(app, ["serve"])

    assert result.exit_code == 2
    assert said in result.stderr
    assert "short-secret" not in result.stderr


def test_options_go_before_variables_and_both_before_what_lies_beside_the_lake(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("TAUT_SERVE_STORE", "sqlite:///set.db")
    (tmp_path / "place").mkdir()
    (tmp_path / "place" / "mlflow.db").touch()

    made = serve_settings(tmp_path / "place" / "lake", {"port": 7, "trace": None})

    assert (made.port, made.store) == (7, "sqlite:///set.db")
    assert made.bundles == tmp_path / "place" / "bundles"
    assert made.tracking_uri == f"sqlite:///{tmp_path / 'place' / 'mlflow.db'}"


def test_bundles_that_are_named_are_mirrored_from_no_registry_but_the_one_named() -> None:
    assert serve_settings(None, {"bundles": Path("mine")}).tracking_uri is None


def test_the_only_trace_served_is_meant_when_a_call_names_none(tmp_path: Path) -> None:
    (tmp_path / "one" / "runtime.pai.ctr").mkdir(parents=True)
    for name in ("runtime.pai.ctr", "usage.philly.other"):
        (tmp_path / "two" / name).mkdir(parents=True)

    assert serve_settings(None, {"bundles": tmp_path / "one"}).trace == "pai"
    assert serve_settings(None, {"bundles": tmp_path / "two"}).trace is None
    assert serve_settings(None, {"bundles": tmp_path / "one", "trace": "helios"}).trace == "helios"


def test_after_a_demo_its_models_are_served_unless_there_are_others(tmp_path: Path) -> None:
    (tmp_path / "data" / "demo" / "bundles").mkdir(parents=True)
    demo = serve_settings(None, {})
    (tmp_path / "data" / "bundles").mkdir(parents=True)
    own = serve_settings(None, {})

    assert demo.bundles == tmp_path / "data" / "demo" / "bundles"
    assert demo.store == f"sqlite:///{tmp_path / 'data' / 'demo' / 'serve.db'}"
    assert own.bundles == tmp_path / "data" / "bundles"


def test_a_token_is_printed_with_an_entry_that_opens_the_service_to_it() -> None:
    made = CliRunner().invoke(app, ["token", "sched", "--scope", "predict", "--trace", "pai", "--cluster", "a"])

    text, entry = made.stdout.splitlines()
    caller = caller_of(f"Bearer {text}".encode(), [Token.model_validate_json(entry)])
    assert caller is not None
    assert (caller.name, caller.traces, caller.clusters) == ("sched", frozenset({"pai"}), frozenset({"a"}))
    assert text not in entry


@pytest.mark.parametrize(
    "arguments", [["token", "x"], ["token", "x", "--scope", "all"], ["token", "", "--scope", "admin"]]
)
def test_a_token_that_makes_no_sense_is_refused(arguments: list[str]) -> None:
    assert CliRunner().invoke(app, arguments).exit_code == 2
