import threading
from pathlib import Path
from types import SimpleNamespace

from features.online import EndedRun
from modelserve.loading.models import ModelSet
from modelserve.store.changes import Erasure
from tests.modelserve.mirrored import NAME, Folder, models_of, run_of


def erased(*, before_us: int = 2_000_000_000_000_000, cluster: str = "") -> Erasure:
    return Erasure(trace="pai", cluster=cluster, user="u1", before_us=before_us, caller="t", at=1.0)


def test_feedback_reaches_models_and_those_loaded_later(folder: Folder, other_version: Path) -> None:
    stored = [run_of("before")]
    models = models_of(folder.path, past=lambda trace: stored if trace == "pai" else ())
    models.refresh()
    history = models.current.champions[NAME].history
    assert history.version == 1

    models.learn([run_of("later"), run_of("later"), run_of("elsewhere", trace="helios")])

    assert history.version == 2
    assert {"before", "later"} <= set(history.frame()["job_id"])


def test_a_new_history_takes_the_feedback_and_is_without_who_is_forgotten(folder: Folder) -> None:
    asked = []

    def forgotten(trace: str) -> list[Erasure]:
        asked.append(trace)
        return [erased()]

    models = models_of(folder.path, past=lambda trace: [run_of("kept", user="u2")], forgotten=forgotten)
    models.refresh()

    frame = models.current.champions[NAME].history.frame()

    assert set(asked) == {"pai"}
    assert "u1" not in set(frame["user"])
    assert "kept" in set(frame["job_id"])


def test_forgetting_stops_at_its_moment_and_its_clusters(folder: Folder) -> None:
    for unreached in (erased(before_us=0), erased(cluster="elsewhere")):
        models = models_of(folder.path, forgotten=lambda trace, each=unreached: [each])
        models.refresh()

        assert "u1" in set(models.current.champions[NAME].history.frame()["user"])


def test_a_user_is_forgotten_in_every_history_of_the_trace(folder: Folder) -> None:
    models = models_of(folder.path)
    models.refresh()
    history = models.current.champions[NAME].history
    assert "u1" in set(history.frame()["user"])

    models.forget("helios", "u1", None)
    assert "u1" in set(history.frame()["user"])
    models.forget("pai", "u1", None)

    assert "u1" not in set(history.frame()["user"])


def test_who_learns_or_forgets_does_not_wait_for_a_model_that_loads(folder: Folder) -> None:
    holder = SimpleNamespace(models=None, waited=None)

    def past(trace: str) -> list[EndedRun]:
        if holder.models is not None and holder.waited is None:
            learner = threading.Thread(target=teach, args=(holder.models,), daemon=True)
            learner.start()
            learner.join(timeout=10)
            holder.waited = learner.is_alive()
        return [run_of("before", user="u2"), run_of("of-u3", user="u3")]

    def teach(models: ModelSet) -> None:
        models.learn([run_of("meanwhile", user="u2"), run_of("elsewhere", trace="helios")])
        models.forget("pai", "u3", None)
        models.learn([run_of("again", user="u3")])
        models.forget("helios", "u2", None)

    holder.models = models_of(folder.path, past=past)
    holder.models.refresh()

    frame = holder.models.current.champions[NAME].history.frame()
    assert holder.waited is False
    assert {"before", "meanwhile", "again"} <= set(frame["job_id"])
    assert not {"of-u3", "elsewhere"} & set(frame["job_id"])
    assert "u3" in set(frame["user"])


def test_a_history_that_could_not_be_built_is_begun_anew(folder: Folder) -> None:
    tries = []

    def past(trace: str) -> list[EndedRun]:
        tries.append(trace)
        if len(tries) == 1:
            raise OSError("no such store")
        return [run_of("before")]

    models = models_of(folder.path, past=past)
    models.refresh()
    models.learn([run_of("later")])

    # The first model failed; the second of the trace found the history.
    [model] = models.current.champions.values()
    assert model.history.version == 2
