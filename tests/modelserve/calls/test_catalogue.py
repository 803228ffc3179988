import math
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import pytest

from modelserve.callers import ANYONE, Caller
from modelserve.errors import NotKnown
from modelserve.scopes import Scope
from modelserve.service import Service
from modelserve.store import Store
from modelserve.store.answers import Comparison, write_comparisons
from tests.modelserve.answering import service_of
from tests.modelserve.conftest import write_small_bundle
from tests.modelserve.mirrored import NAME, USAGE, Folder

PAI = Caller(name="pai", scopes=frozenset({Scope.PREDICT}), traces=frozenset({"pai"}))
HELIOS = Caller(name="helios", scopes=frozenset({Scope.PREDICT}), traces=frozenset({"helios"}))


@pytest.fixture
def service(folder: Folder) -> Service:
    return service_of(folder.path, drift_window=20)


def test_a_caller_sees_its_own_traces_only(service: Service) -> None:
    assert len(service.list_models(PAI).models) == 2
    assert service.list_models(HELIOS).models == ()
    told = []
    for name in (NAME, "runtime.pai.zzz"):
        with pytest.raises(NotKnown) as error:
            service.show_model(HELIOS, name)
        told.append(str(error.value).replace(name, "..."))

    assert told[0] == told[1], "a name out of reach is told as one that is not"
    assert "usage.pai" not in told[0]


def test_an_unknown_name_is_told_with_what_is_near(service: Service) -> None:
    with pytest.raises(NotKnown, match=r"'runtime\.pai\.ctrr' is not known, expected one of runtime\.pai\.ctr, "):
        service.show_model(ANYONE, "runtime.pai.ctrr")


@pytest.mark.parametrize("name", ["", "..", "x" * 5000, "runtime.pai.ctr\n", "runtime.pai.ctr@champion"])
def test_a_name_that_is_none_is_refused_shortly(service: Service, name: str) -> None:
    for ask in (service.show_model, service.importances_of, service.card_of):
        with pytest.raises(NotKnown) as error:
            ask(ANYONE, name)
        assert len(str(error.value)) < 300


def test_one_model_shows_its_challenger_and_its_failure(service: Service, folder: Folder) -> None:
    place = folder.add(NAME, "2", alias="challenger", source=folder.sources["runtime"])
    folder.add(USAGE, "2")
    (folder.path / USAGE / "2" / "card.json").write_text("{}")
    service.models.refresh()

    shown, broken = service.show_model(ANYONE, NAME), service.show_model(ANYONE, USAGE)

    assert (shown.champion.version, shown.challenger.version, shown.failures) == ("1", "2", ())
    assert shown.challenger.alias == "challenger"
    assert place.name == "2"
    assert broken.champion.version == "1"
    assert [(each.name, each.alias) for each in broken.failures] == [(USAGE, "champion")]
    assert "card.json" in broken.failures[0].error


def compared(i: int, champion: str, cluster: str = "c1", **changes: object) -> Comparison:
    said = {"p50_s": 100.0, "p90_s": 200.0, "challenger_p50_s": 100.0 * math.exp(0.1 * i), "challenger_p90_s": 300.0}
    return Comparison(
        answer_id=f"a{i}",
        at=float(i),
        trace="pai",
        cluster=cluster,
        job_id="j",
        champion=champion,
        challenger=f"{NAME}@2",
        **{**said, **changes},
    )


@pytest.fixture
def challenged(service: Service, folder: Folder, tmp_path: Path) -> Iterator[Service]:
    """Return a service with a challenger beside each champion, and a store of comparisons."""
    folder.add(NAME, "2", alias="challenger", source=folder.sources["runtime"])
    folder.add(USAGE, "2", alias="challenger", source=folder.sources["usage"])
    service.models.refresh()
    store = Store.open(f"sqlite:///{tmp_path}/serve.db")
    yield replace(service, store=store, shadow=SimpleNamespace(dropped=3))  # type: ignore[arg-type]
    store.close()


def test_a_challenger_is_shown_beside_the_champion(challenged: Service) -> None:
    theirs = [compared(i, f"{NAME}@1") for i in range(11)]
    unknown = compared(40, f"{NAME}@1", challenger_p50_s=None)
    former = compared(50, f"{NAME}@0")
    write_comparisons(challenged.store, [*theirs, unknown, former], kept=100)

    shown = challenged.show_model(ANYONE, NAME).shadow

    assert (shown.jobs, shown.dropped) == (11, 3)
    assert shown.median_log_ratio == pytest.approx(0.5)
    assert shown.p90_abs_log_ratio == pytest.approx(0.9)


def test_a_caller_sees_comparisons_of_its_own_clusters_only(challenged: Service) -> None:
    write_comparisons(challenged.store, [compared(1, f"{NAME}@1"), compared(9, f"{NAME}@1", cluster="c2")], kept=100)
    bound = Caller(name="c1", scopes=frozenset({Scope.PREDICT}), clusters=frozenset({"c1"}))

    assert challenged.show_model(bound, NAME).shadow.jobs == 1
    assert challenged.show_model(bound, NAME).shadow.median_log_ratio == pytest.approx(0.1)


def test_nothing_is_said_of_what_is_not_compared(challenged: Service) -> None:
    nothing_yet, of_use = challenged.show_model(ANYONE, NAME).shadow, challenged.show_model(ANYONE, USAGE)

    assert (nothing_yet.jobs, nothing_yet.median_log_ratio, nothing_yet.p90_abs_log_ratio) == (0, None, None)
    assert of_use.challenger is not None
    assert of_use.shadow is None


def test_a_model_that_could_never_be_loaded_is_known_by_its_failure(folder: Folder) -> None:
    (folder.path / NAME / "1" / "card.json").write_text("{}")
    service = service_of(folder.path)

    shown = service.show_model(ANYONE, NAME)

    assert (shown.champion, len(shown.failures)) == (None, 1)
    with pytest.raises(NotKnown, match=r"no champion is loaded \(.*card\.json"):
        service.card_of(ANYONE, NAME)
    assert [each.name for each in service.list_models(ANYONE).failures] == [NAME]


def test_an_answer_without_columns_has_explicitly_no_importances(folder: Folder) -> None:
    reason = "run times of ended jobs answer alone, without columns to permute"
    bare = folder.path.parent / "bare"
    found = {"resource": "net_bytes_per_s", "mean": 0.5, "std": 0.04, "repeats": 5, "sign": -0.6}
    response = {"trusted": False, "why": "no lead", "rows": 99, "lead": 0.01, "importances": [found]}
    write_small_bundle(bare, no_importances=reason, response=response)
    folder.add(NAME, "2", source=bare)
    service = service_of(folder.path)

    none, some = service.importances_of(ANYONE, NAME), service.importances_of(ANYONE, USAGE)

    assert (none.version, none.importances, none.reason) == ("2", None, reason)
    assert (none.response.trusted, none.response.importances[0].resource) == (False, "net_bytes_per_s")
    assert (some.importances[0].feature, some.reason, some.response) == ("req_gpus", None, None)


def test_an_alias_that_nothing_has_is_said_so(service: Service) -> None:
    with pytest.raises(NotKnown, match="no challenger is loaded"):
        service.importances_of(ANYONE, NAME, "challenger")
