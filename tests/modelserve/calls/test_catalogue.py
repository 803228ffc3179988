import math
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace

import pytest

from modelserve.callers import ANYONE, Caller, Scope
from modelserve.calls.catalogue import card_of, importances_of, list_models, show_model
from modelserve.errors import NotKnown
from modelserve.store import Store
from modelserve.store.comparisons import Comparison, write_comparisons
from tests.modelserve.mirrored import NAME, USAGE, Folder, models_of

PAI = Caller(name="pai", scopes=frozenset({Scope.PREDICT}), traces=frozenset({"pai"}))
HELIOS = Caller(name="helios", scopes=frozenset({Scope.PREDICT}), traces=frozenset({"helios"}))


@pytest.fixture
def service(folder: Folder) -> SimpleNamespace:
    models = models_of(folder.path)
    models.refresh()
    return SimpleNamespace(models=models, shadow=None)


def test_every_model_is_listed_by_its_card(service: SimpleNamespace) -> None:
    answer = list_models(service, ANYONE)

    assert [(row.name, row.version, row.alias, row.kind, row.trace, row.task_type) for row in answer.models] == [
        (NAME, "1", "champion", "runtime", "pai", "ctr"),
        (USAGE, "1", "champion", "usage", "pai", "ctr"),
    ]
    [row, _] = answer.models
    assert (row.rows, row.metrics) == (300, {"pinball": 0.2, "lead": None})
    assert row.features == len(service.models.current.champions[NAME].bundle.contract.names)
    assert (answer.generation, answer.failures) == (1, ())
    assert answer.model_dump_json()


def test_a_caller_sees_its_own_traces_only(service: SimpleNamespace) -> None:
    assert len(list_models(service, PAI).models) == 2
    assert list_models(service, HELIOS).models == ()
    with pytest.raises(NotKnown) as told:
        show_model(service, HELIOS, NAME)
    assert "usage.pai" not in str(told.value)


def test_a_name_that_is_out_of_reach_is_told_as_one_that_is_not(service: SimpleNamespace) -> None:
    told = []
    for name in (NAME, "runtime.pai.zzz"):
        with pytest.raises(NotKnown) as error:
            show_model(service, HELIOS, name)
        told.append(str(error.value).replace(name, "..."))

    assert told[0] == told[1]


def test_an_unknown_name_is_told_with_what_is_near(service: SimpleNamespace) -> None:
    with pytest.raises(NotKnown, match=r"'runtime\.pai\.ctrr' is not known, expected one of runtime\.pai\.ctr, "):
        show_model(service, ANYONE, "runtime.pai.ctrr")


@pytest.mark.parametrize("name", ["", "..", "x" * 5000, "runtime.pai.ctr\n", "runtime.pai.ctr@champion"])
def test_a_name_that_is_none_is_refused_shortly(service: SimpleNamespace, name: str) -> None:
    for ask in (show_model, importances_of, card_of):
        with pytest.raises(NotKnown) as error:
            ask(service, ANYONE, name)
        assert len(str(error.value)) < 300


def test_one_model_shows_its_challenger_and_its_failure(service: SimpleNamespace, folder: Folder) -> None:
    place = folder.add(NAME, "2", alias="challenger", source=folder.sources["runtime"])
    folder.add(USAGE, "2")
    (folder.path / USAGE / "2" / "card.json").write_text("{}")
    service.models.refresh()

    shown, broken = show_model(service, ANYONE, NAME), show_model(service, ANYONE, USAGE)

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
def challenged(service: SimpleNamespace, folder: Folder, tmp_path: Path) -> Iterator[SimpleNamespace]:
    """Return a service with a challenger beside each champion, and a store of comparisons."""
    folder.add(NAME, "2", alias="challenger", source=folder.sources["runtime"])
    folder.add(USAGE, "2", alias="challenger", source=folder.sources["usage"])
    service.models.refresh()
    store = Store.open(f"sqlite:///{tmp_path}/serve.db")
    shadow, settings = SimpleNamespace(dropped=3), SimpleNamespace(drift_window=20)
    yield SimpleNamespace(models=service.models, store=store, shadow=shadow, settings=settings)
    store.close()


def test_a_challenger_is_shown_beside_the_champion(challenged: SimpleNamespace) -> None:
    theirs = [compared(i, f"{NAME}@1") for i in range(11)]
    unknown = compared(40, f"{NAME}@1", challenger_p50_s=None)
    former = compared(50, f"{NAME}@0")
    write_comparisons(challenged.store, [*theirs, unknown, former], kept=100)

    shown = show_model(challenged, ANYONE, NAME).shadow

    assert (shown.jobs, shown.dropped) == (11, 3)
    assert shown.median_log_ratio == pytest.approx(0.5)
    assert shown.p90_abs_log_ratio == pytest.approx(0.9)


def test_a_caller_sees_comparisons_of_its_own_clusters_only(challenged: SimpleNamespace) -> None:
    write_comparisons(challenged.store, [compared(1, f"{NAME}@1"), compared(9, f"{NAME}@1", cluster="c2")], kept=100)
    bound = Caller(name="c1", scopes=frozenset({Scope.PREDICT}), clusters=frozenset({"c1"}))

    assert show_model(challenged, bound, NAME).shadow.jobs == 1
    assert show_model(challenged, bound, NAME).shadow.median_log_ratio == pytest.approx(0.1)


def test_nothing_is_said_of_what_is_not_compared(challenged: SimpleNamespace) -> None:
    nothing_yet, of_use = show_model(challenged, ANYONE, NAME).shadow, show_model(challenged, ANYONE, USAGE)

    assert (nothing_yet.jobs, nothing_yet.median_log_ratio, nothing_yet.p90_abs_log_ratio) == (0, None, None)
    assert of_use.challenger is not None
    assert of_use.shadow is None


def test_a_model_that_could_never_be_loaded_is_known_by_its_failure(folder: Folder) -> None:
    (folder.path / NAME / "1" / "card.json").write_text("{}")
    models = models_of(folder.path)
    models.refresh()
    service = SimpleNamespace(models=models, shadow=None)

    shown = show_model(service, ANYONE, NAME)

    assert (shown.champion, len(shown.failures)) == (None, 1)
    with pytest.raises(NotKnown, match=r"no champion is loaded \(.*card\.json"):
        card_of(service, ANYONE, NAME)
    assert [each.name for each in list_models(service, ANYONE).failures] == [NAME]


def test_importances_come_with_what_their_numbers_mean(service: SimpleNamespace) -> None:
    answer = importances_of(service, ANYONE, NAME)

    assert [(each.feature, each.mean, each.std, each.repeats, each.sign) for each in answer.importances] == [
        ("req_gpus", 0.3, 0.1, 5, -0.5)
    ]
    assert (answer.version, answer.alias) == ("1", "champion")
    assert "SHAP" in answer.sign_means
    assert "shuffled" in answer.mean_means


def test_importances_of_resources_come_with_their_signs(service: SimpleNamespace) -> None:
    answer, of_use = (importances_of(service, ANYONE, name) for name in (NAME, USAGE))

    assert answer.important == ()
    assert [(each.resource, each.mean, each.std, each.repeats, each.sign) for each in answer.resources or ()] == [
        ("cpu_cores", 0.02, 0.01, 5, 0.1),
        ("mem_gib", 0.0, 0.0, 5, None),
        ("gpus", 0.004, 0.003, 5, -0.4),
    ]
    assert "the request" in answer.resource_sign_means
    assert of_use.resources is None


def test_a_card_is_given_as_it_was_written(service: SimpleNamespace) -> None:
    answer = card_of(service, PAI, USAGE)

    assert answer.card == service.models.current.champions[USAGE].bundle.card
    assert '"lead":null' in answer.model_dump_json()


def test_an_alias_that_nothing_has_is_said_so(service: SimpleNamespace) -> None:
    with pytest.raises(NotKnown, match="no challenger is loaded"):
        importances_of(service, ANYONE, NAME, "challenger")
