import threading
from pathlib import Path
from types import SimpleNamespace

from features.online import EndedRun
from modelserve.loading.models import ModelSet
from tests.modelserve.mirrored import NAME, Folder, models_of, run_of


def test_feedback_reaches_models_and_those_loaded_later(folder: Folder, other_version: Path) -> None:
    stored = [run_of("before")]
    models = models_of(folder.path, past=lambda trace: stored if trace == "pai" else ())
    models.refresh()
    history = models.current.champions[NAME].history
    assert history.version == 1

    models.learn([run_of("later"), run_of("later"), run_of("elsewhere", trace="helios")])

    assert history.version == 2
    assert {"before", "later"} <= set(history.frame()["job_id"])


def test_who_learns_does_not_wait_for_a_model_that_loads(folder: Folder) -> None:
    holder = SimpleNamespace(models=None, waited=None)

    def past(trace: str) -> list[EndedRun]:
        if holder.models is not None and holder.waited is None:
            learner = threading.Thread(target=teach, args=(holder.models,), daemon=True)
            learner.start()
            learner.join(timeout=10)
            holder.waited = learner.is_alive()
        return [run_of("before", user="u2")]

    def teach(models: ModelSet) -> None:
        models.learn([run_of("meanwhile", user="u2"), run_of("elsewhere", trace="helios")])
        models.learn([run_of("again", user="u3")])

    holder.models = models_of(folder.path, past=past)
    holder.models.refresh()

    frame = holder.models.current.champions[NAME].history.frame()
    assert holder.waited is False
    assert {"before", "meanwhile", "again"} <= set(frame["job_id"])
    assert "elsewhere" not in set(frame["job_id"])


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
