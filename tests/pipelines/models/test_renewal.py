"""Renewing champions: a promotion that did harm is undone, and a challenger that is worse is not promoted."""

from collections.abc import Callable
from dataclasses import replace
from datetime import timedelta
from typing import Any

import numpy as np
import polars as pl
import pytest

from features.tables import TABLES as CANONICAL
from modelserve.bundle.bundle import Bundle, read_bundle
from modelserve.errors import MirrorError
from pipelines.errors import RegistryError
from pipelines.models import renewal
from pipelines.models.boosting import Boosting
from pipelines.models.examples import Setting
from pipelines.models.model import TrainedModel, write_model
from pipelines.models.recipes import Recipe
from pipelines.models.renewal import Decision, renew
from pipelines.models.retrain import Retrained
from pipelines.models.runtime import train_runtime
from pipelines.models.tracking import ModelVersion
from pipelines.models.training_tables import Tables
from tests.pipelines.models.conftest import T0, make_jobs

NAME = "runtime.made.ctr"
CUT, SEEN = T0 + timedelta(days=10), T0 + timedelta(days=15)
QUICK = Recipe(boosting=Boosting(rounds=10, num_parallel_tree=1, patience=8, learning_rate=0.3, max_depth=3))
JOBS = make_jobs(900, 6)
TABLES = Tables(jobs=JOBS, usage=CANONICAL["usage"].create_empty())


def version(number: int, **changes: Any) -> ModelVersion:
    made = ModelVersion(
        name=NAME,
        version=number,
        aliases=(),
        verdict="better",
        answer="combined",
        reasons="passed here",
        digest="",
        run_id="",
        replaced=None,
        seen=SEEN,
    )
    return replace(made, **changes)


class Registry:
    """A registry in memory: its versions, and the number of the champion."""

    def __init__(self, versions: dict[int, ModelVersion], champion: int | None) -> None:
        self.held, self.champion = versions, champion

    def versions(self, *, uri: str, name: str = NAME) -> list[ModelVersion]:
        return [
            replace(each, aliases=("champion",) if number == self.champion else ())
            for number, each in self.held.items()
        ]

    def promote(self, name: str, *, uri: str, version: int) -> ModelVersion:
        self.champion = version
        return self.held[version]

    def rollback(self, name: str, *, uri: str) -> ModelVersion:
        self.champion = self.held[self.champion or 0].replaced
        return self.held[self.champion or 0]


Make = Callable[..., Registry]
Read = Callable[[str, int], Bundle]


@pytest.fixture
def registry(monkeypatch: pytest.MonkeyPatch) -> Make:
    """Return a maker of registries; the one made last answers."""

    def make(champion: int | None, *held: ModelVersion) -> Registry:
        made = Registry({each.version: each for each in held}, champion)
        for name in ("versions", "promote", "rollback"):
            monkeypatch.setattr(renewal, name, getattr(made, name))
        return made

    return make


@pytest.fixture(scope="module")
def good() -> TrainedModel:
    return train_runtime(Setting(jobs=JOBS, trace="made", until=CUT), "ctr", QUICK)


@pytest.fixture(scope="module")
def bundles(good: TrainedModel, tmp_path_factory: pytest.TempPathFactory) -> Read:
    """Return a reader of bundles: odd versions are good, even ones predict ten times the run time."""
    folder = tmp_path_factory.mktemp("renewal")
    bad = replace(good, offsets={name: offset + np.log(10.0) for name, offset in good.offsets.items()})
    read = {}
    for kind, model in (("good", good), ("bad", bad)):
        write_model(model, folder / kind, created=CUT)
        read[kind] = read_bundle(folder / kind)
    return lambda name, number: read["good" if number % 2 else "bad"]


def renewed(bundles: Read, *trained: Retrained, tables: Tables = TABLES) -> list[Decision]:
    train = (lambda: trained) if trained else None
    return renew(tables, "made", uri="somewhere", read_version=bundles, train=train)


def test_a_champion_that_does_worse_than_the_version_it_replaced_is_rolled_back(registry: Make, bundles: Read) -> None:
    held = registry(2, version(1), version(2, replaced=1))

    [decision] = renewed(bundles)

    assert (decision.outcome, decision.model, held.champion) == ("rolled_back", f"{NAME}@2", 1)
    assert decision.lead is not None
    assert decision.lead.hi < 0
    assert decision.jobs == JOBS.filter(pl.col("submit_ts") >= SEEN).height
    assert f"worse than {NAME}@1" in decision.why


def test_a_champion_that_does_better_stays(registry: Make, bundles: Read) -> None:
    held = registry(3, version(2), version(3, replaced=2))

    [decision] = renewed(bundles)

    assert (decision.outcome, held.champion) == ("kept", 3)
    assert decision.lead is not None
    assert decision.lead.lo > 0


def test_jobs_of_no_length_are_not_compared(registry: Make, bundles: Read) -> None:
    registry(3, version(2), version(3, replaced=2))
    later = pl.col("submit_ts") >= SEEN
    first = JOBS.filter(later)["submit_ts"].min()
    at_once = pl.when(later & (pl.col("submit_ts") == first)).then(0.0).otherwise("run_s").alias("run_s")

    [decision] = renewed(bundles, tables=replace(TABLES, jobs=JOBS.with_columns(at_once)))

    assert decision.jobs == JOBS.filter(later & (pl.col("submit_ts") > first)).height


def gone(name: str, number: int) -> Bundle:
    raise MirrorError("deleted")


@pytest.mark.parametrize(
    ("champion", "jobs", "read", "why"),
    [
        (version(2), JOBS, None, "replaced no version"),
        (version(2, replaced=1, seen=None), JOBS, None, "no recorded end"),
        (version(2, replaced=1), JOBS[:500], None, "new jobs ended, expected at least 200"),
        (version(2, replaced=1), JOBS, gone, f"not compared with {NAME}@1: deleted"),
    ],
)
def test_without_evidence_a_champion_stays(
    registry: Make, bundles: Read, champion: ModelVersion, jobs: pl.DataFrame, read: Read | None, why: str
) -> None:
    held = registry(2, version(1), champion)

    [decision] = renewed(read or bundles, tables=replace(TABLES, jobs=jobs))

    assert (decision.outcome, held.champion) == ("kept", 2)
    assert why in decision.why


@pytest.mark.parametrize(
    ("challenger", "champion", "outcome", "after"),
    [(5, 1, "promoted", 5), (4, 1, "kept", 1), (3, 2, "promoted", 3), (3, None, "promoted", 3)],
)
def test_a_challenger_is_promoted_unless_it_is_worse(
    registry: Make, bundles: Read, good: TrainedModel, challenger: int, champion: int | None, outcome: str, after: int
) -> None:
    held = registry(champion, version(1), version(2), version(challenger))

    [decision] = renewed(bundles, Retrained(model=good, version=version(challenger)))

    assert (decision.outcome, held.champion) == (outcome, after)


@pytest.mark.parametrize("word", ["worse", "too few", "failed"])
def test_a_challenger_that_the_gate_refused_is_kept_back(
    registry: Make, bundles: Read, good: TrainedModel, word: str
) -> None:
    held = registry(1, version(1))

    [decision] = renewed(bundles, Retrained(model=good, version=version(3, verdict=word, reasons="seen")))

    assert (decision.outcome, decision.why, held.champion) == ("kept", "seen", 1)


def test_a_first_run_has_no_promotion_to_check(
    bundles: Read, good: TrainedModel, monkeypatch: pytest.MonkeyPatch
) -> None:
    def absent(*, uri: str, name: str | None = None) -> list[ModelVersion]:
        if name is None:
            raise RegistryError("no models yet")
        return []

    monkeypatch.setattr(renewal, "versions", absent)
    monkeypatch.setattr(renewal, "promote", lambda name, *, uri, version: None)
    said: list[str] = []

    [decision] = renew(
        TABLES,
        "made",
        uri="somewhere",
        read_version=bundles,
        train=lambda: [Retrained(model=good, version=version(1))],
        talk=said.append,
    )

    assert decision.outcome == "promoted"
    assert said == ["no earlier promotion to check (no models yet)"]
    with pytest.raises(RegistryError, match="no models yet"):
        renewed(bundles)


def test_versions_are_compared_on_jobs_that_neither_was_trained_on(registry: Make, bundles: Read) -> None:
    registry(2, version(1), version(2, replaced=1, seen=T0))

    [decision] = renewed(bundles)

    assert decision.jobs == JOBS.filter(pl.col("submit_ts") >= CUT).height
