from pathlib import Path

import pytest

from pipelines.errors import BadUsage
from pipelines.settings import Settings, load_settings


@pytest.fixture(autouse=True)
def _bare_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    for field in Settings.model_fields:
        monkeypatch.delenv(f"TAUT_{field.upper()}", raising=False)
    monkeypatch.delenv("MLFLOW_TRACKING_URI", raising=False)


def test_defaults_stay_below_data_and_beside_the_lake() -> None:
    settings = load_settings()

    assert settings.lake == Path("data/lake")
    assert (settings.bundles, settings.tracking_uri) == (None, None)
    assert (settings.traces, settings.trace, settings.seed) == (None, None, 0)
    assert settings.threads >= 1


@pytest.mark.parametrize(
    ("variable", "text", "field", "value"),
    [
        ("TAUT_LAKE", "/srv/lake", "lake", Path("/srv/lake")),
        ("TAUT_BUNDLES", "b", "bundles", Path("b")),
        ("TAUT_TRACES", "../traces", "traces", Path("../traces")),
        ("TAUT_TRACE", "philly", "trace", "philly"),
        ("TAUT_SEED", "7", "seed", 7),
        ("TAUT_THREADS", "3", "threads", 3),
        ("MLFLOW_TRACKING_URI", "https://example.org/mlflow", "tracking_uri", "https://example.org/mlflow"),
    ],
)
def test_the_environment_is_read(
    monkeypatch: pytest.MonkeyPatch, variable: str, text: str, field: str, value: object
) -> None:
    monkeypatch.setenv(variable, text)

    assert getattr(load_settings(), field) == value


@pytest.mark.parametrize("variable", ["TAUT_LAKE", "TAUT_TRACES", "TAUT_SEED", "MLFLOW_TRACKING_URI"])
def test_an_empty_variable_counts_as_absent(monkeypatch: pytest.MonkeyPatch, variable: str) -> None:
    before = load_settings()
    monkeypatch.setenv(variable, "")

    assert load_settings() == before


@pytest.mark.parametrize(
    ("variable", "text"), [("TAUT_SEED", "-1"), ("TAUT_SEED", "many"), ("TAUT_THREADS", "0"), ("TAUT_THREADS", "1.5")]
)
def test_what_cannot_be_meant_names_the_variable(monkeypatch: pytest.MonkeyPatch, variable: str, text: str) -> None:
    monkeypatch.setenv(variable, text)

    with pytest.raises(BadUsage, match=f"{variable} is '{text}'"):
        load_settings()
