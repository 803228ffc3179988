import pytest

from modelserve.callers import ANYONE, Caller
from modelserve.errors import NotKnown
from modelserve.scopes import Scope
from modelserve.service import Service
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
            service.card_of(HELIOS, name)
        told.append(str(error.value).replace(name, "..."))

    assert told[0] == told[1], "a name out of reach is told as one that is not"
    assert "usage.pai" not in told[0]


def test_an_unknown_name_is_told_with_what_is_near(service: Service) -> None:
    with pytest.raises(NotKnown, match=r"'runtime\.pai\.ctrr' is not known, expected one of runtime\.pai\.ctr, "):
        service.card_of(ANYONE, "runtime.pai.ctrr")


@pytest.mark.parametrize("name", ["", "..", "x" * 5000, "runtime.pai.ctr\n", "runtime.pai.ctr@champion"])
def test_a_name_that_is_none_is_refused_shortly(service: Service, name: str) -> None:
    for ask in (service.importances_of, service.card_of):
        with pytest.raises(NotKnown) as error:
            ask(ANYONE, name)
        assert len(str(error.value)) < 300


def test_a_model_is_listed_with_its_failure(service: Service, folder: Folder) -> None:
    folder.add(USAGE, "2")
    (folder.path / USAGE / "2" / "card.json").write_text("{}")
    service.models.refresh()

    shown = service.list_models(ANYONE)

    assert [(each.name, each.version) for each in shown.models] == [(NAME, "1"), (USAGE, "1")]
    assert [each.name for each in shown.failures] == [USAGE]
    assert "card.json" in shown.failures[0].error


def test_a_model_that_could_never_be_loaded_is_known_by_its_failure(folder: Folder) -> None:
    (folder.path / NAME / "1" / "card.json").write_text("{}")
    service = service_of(folder.path)

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
