"""Settings that are handed to a child process arrive as they were."""

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from modelserve.callers import Token
from modelserve.scopes import Scope
from modelserve.server.environment import child_environment
from modelserve.settings import ServeSettings, TypePolicy

TEXT = st.text(st.characters(codec="ascii", categories=("L", "N", "P")), min_size=1, max_size=20)
TOKENS = st.builds(
    Token,
    name=TEXT,
    sha256=st.text("0123456789abcdef", min_size=64, max_size=64),
    scopes=st.frozensets(st.sampled_from(Scope)),
    traces=st.none() | st.frozensets(TEXT, max_size=2),
)


@given(
    tokens=st.lists(TOKENS, max_size=3, unique_by=lambda token: token.name).map(tuple),
    trace=st.none() | TEXT,
    store=TEXT,
    password=st.none() | TEXT,
    calls_per_s=st.none() | st.floats(0.5, 100),
    types=st.dictionaries(TEXT, st.builds(TypePolicy, theta=st.none() | st.floats(0.01, 1)), max_size=2),
)
def test_what_is_handed_over_is_read_back(**said: object) -> None:
    settings = ServeSettings(bundles=Path("some/bundles"), tls_key_password=said.pop("password"), **said)

    with pytest.MonkeyPatch.context() as patch:
        for name, value in child_environment(settings, {}).items():
            patch.setenv(name, value)
        read = ServeSettings()

    assert read == settings


def test_a_child_gets_our_environment_its_settings_and_what_is_meant_for_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TAUT_SERVE_PORT", "1")
    monkeypatch.setenv("OMP_NUM_THREADS", "3")

    made = child_environment(ServeSettings(port=2), {"MORE": "m"})

    assert (made["TAUT_SERVE_PORT"], made["OMP_NUM_THREADS"], made["MORE"]) == ("2", "3", "m")
    assert "PATH" in made
