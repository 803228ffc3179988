"""Populations: like rows lie near, unlike far, and what is read is what was written."""

import numpy as np
import polars as pl
import pytest

from features.contract import FeatureContract
from modelserve.bundle.population import Population
from modelserve.errors import BundleError

ROLES = ["worker", "ps", None]


def frame_of(
    seed: int, *, shift: float = 0.0, roles: tuple[float, ...] = (0.6, 0.3, 0.1), rows: int = 4000
) -> pl.DataFrame:
    rng = np.random.default_rng(seed)
    return pl.DataFrame(
        {
            "req_cpu_cores": np.where(rng.random(rows) < 0.2, np.nan, np.exp(rng.normal(shift, 1.0, rows))),
            "req_gpus": rng.choice([0.25, 0.5, 1.0], rows),
            "role": [ROLES[i] for i in rng.choice(3, rows, p=roles)],
        }
    ).with_columns(pl.col("req_cpu_cores").fill_nan(None))


@pytest.fixture(scope="module")
def contract() -> FeatureContract:
    return FeatureContract.fit(frame_of(1))


@pytest.fixture(scope="module")
def population(contract: FeatureContract) -> Population:
    return Population.of(contract.encode(frame_of(1)), contract)


def psi_of(population: Population, contract: FeatureContract, frame: pl.DataFrame) -> dict[str, float]:
    matrix = contract.encode(frame)
    return {name: population.features[name].psi(matrix[:, i]) for i, name in enumerate(contract.names)}


@pytest.mark.parametrize(
    ("changed", "far"),
    [
        ({"shift": 1.0}, "req_cpu_cores"),
        ({"roles": (0.2, 0.2, 0.6)}, "role"),
    ],
)
def test_what_moved_lies_far_and_the_rest_near(
    population: Population, contract: FeatureContract, changed: dict[str, object], far: str
) -> None:
    psi = psi_of(population, contract, frame_of(3, **changed))  # type: ignore[arg-type]

    assert psi.pop(far) > 0.2
    assert max(psi.values()) < 0.02


def test_shares_and_missing_add_up_to_one(population: Population) -> None:
    for each in population.features.values():
        assert sum(each.shares) + each.missing == pytest.approx(1.0)
    assert population.features["req_cpu_cores"].missing == pytest.approx(0.2, abs=0.03)
    assert population.features["req_cpu_cores"].edges == pytest.approx(
        sorted(population.features["req_cpu_cores"].edges or ())
    )
    assert len(population.features["req_gpus"].edges or ()) <= 3


def test_a_feature_without_values_has_a_population() -> None:
    contract = FeatureContract.fit(pl.DataFrame({"req_gpus": [None]}, schema={"req_gpus": pl.Float64}))

    each = Population.of(np.full((2, 1), np.nan, dtype=np.float32), contract).features["req_gpus"]

    assert each.edges == ()
    assert each.psi(np.array([np.nan], dtype=np.float32)) == pytest.approx(0.0)
    assert each.psi(np.array([1.0], dtype=np.float32)) > 1.0


def test_what_is_read_is_what_was_written(population: Population, contract: FeatureContract) -> None:
    text = population.to_json()

    assert Population.from_json(text, contract.names, where="here") == population
    assert Population.from_json(text, contract.names, where="here").to_json() == text


@pytest.mark.parametrize(
    ("data", "said"),
    [
        (b"{}", "rows"),
        (b'{"rows":1,"features":{}}', "0 features, expected the 3"),
        (b'{"rows":1,"features":{"req_gpus":{"edges":[1.0],"shares":[1.0],"missing":0.0}}}', "one more than edges"),
    ],
)
def test_what_is_no_population_of_the_model_is_refused(contract: FeatureContract, data: bytes, said: str) -> None:
    with pytest.raises(BundleError, match=said):
        Population.from_json(data, contract.names, where="here")
