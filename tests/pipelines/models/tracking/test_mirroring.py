from pathlib import Path

import numpy as np
import pytest

from modelserve.bundle.bundle import CHECKSUMS, read_bundle
from modelserve.bundle.champions import read_champions, read_pointer
from modelserve.bundle.predictor import InProcessPredictor
from modelserve.bundle.registry import Mirrored, mirror
from modelserve.errors import MirrorError
from pipelines.errors import RegistryError
from pipelines.models.tracking import promote, rollback, track, versions
from scheduler_core.types import Job, Request
from tests.pipelines.models.tracking.tracked import CUT, model_of


def mirror_of(uri: str, folder: Path, name: str) -> list[Mirrored]:
    """Mirror every champion that the tests of this file have registered so far; return what was done of one."""
    return [each for each in mirror(uri, folder) if each.name == name]


@pytest.mark.slow
def test_a_champion_is_mirrored_and_answers_without_mlflow(uri: str, tmp_path: Path) -> None:
    promote(track(model_of("served"), uri=uri).name, uri=uri)
    track(model_of("unpromoted"), uri=uri)
    champions = {each.name for each in versions(uri=uri) if "champion" in each.aliases}
    assert {each.name for each in mirror(uri, tmp_path / "all")} == champions
    assert "runtime.pai.unpromoted" not in champions

    [fetched] = mirror_of(uri, tmp_path, "runtime.pai.served")
    [present] = mirror_of(uri, tmp_path, "runtime.pai.served")
    champions = read_champions(tmp_path)

    assert (fetched.outcome, present.outcome, fetched.version) == ("fetched", "present", "1")
    assert sorted(p.name for p in (tmp_path / "runtime.pai.served").iterdir()) == ["1", "champion.json"]
    assert champions.failures == {}
    predictor = InProcessPredictor(bundles=champions.bundles)
    job = Job(
        job_id="a1",
        trace="pai",
        task_type="served",
        request=Request(cpu_cores=2.0, mem_gib=29.3, gpus=0.5),
        submit_ts=CUT.timestamp(),
    )
    assert predictor.run_times([job], np.array([0]), np.array([job.request.row()])).p50[0] > 0
    assert predictor.sources(job).run_time == "runtime.pai.served@1"


def test_the_mirror_follows_the_alias_back_and_forth(uri: str, tmp_path: Path) -> None:
    name = "runtime.pai.moving"
    seen = []
    promote(track(model_of("moving"), uri=uri).name, uri=uri)
    mirror_of(uri, tmp_path, name)
    seen.append(read_pointer(tmp_path, name).version)
    promote(track(model_of("moving", rounds=7), uri=uri).name, uri=uri)
    mirror_of(uri, tmp_path, name)
    seen.append(read_pointer(tmp_path, name).version)
    rollback(name, uri=uri)
    [back] = mirror_of(uri, tmp_path, name)
    seen.append(read_pointer(tmp_path, name).version)

    assert seen == ["1", "2", "1"]
    assert back.outcome == "present"


def test_a_damaged_mirror_is_fetched_again(uri: str, tmp_path: Path) -> None:
    name = promote(track(model_of("damaged"), uri=uri).name, uri=uri).name
    mirror_of(uri, tmp_path, name)
    (tmp_path / name / "1" / "card.json").write_text("{}")
    assert list(read_champions(tmp_path).failures) == [name]

    [again] = mirror_of(uri, tmp_path, name)

    assert again.outcome == "fetched"
    assert name in read_champions(tmp_path).bundles


def test_a_registered_bundle_that_was_changed_does_not_move_the_pointer(uri: str, tmp_path: Path) -> None:
    name = promote(track(model_of("tampered"), uri=uri).name, uri=uri).name
    mirror_of(uri, tmp_path, name)
    second = promote(track(model_of("tampered", rounds=9), uri=uri).name, uri=uri)
    for sums in Path(uri.removeprefix("sqlite:///")).parent.rglob(CHECKSUMS):
        if read_bundle(sums.parent).digest == second.digest:
            (sums.parent / "importances.json").write_text("[]")

    [failed] = mirror_of(uri, tmp_path, name)

    assert failed.outcome == "failed"
    assert "importances.json" in failed.detail
    assert read_pointer(tmp_path, name).version == "1"
    assert name in read_champions(tmp_path).bundles
    assert sorted(p.name for p in (tmp_path / name).iterdir()) == ["1", "champion.json"]


def test_a_registry_that_is_away_leaves_the_mirror_alone_and_is_reported_in_one_short_line(
    uri: str, tmp_path: Path, impatient: None
) -> None:
    name = promote(track(model_of("away"), uri=uri).name, uri=uri).name
    mirror_of(uri, tmp_path, name)

    with pytest.raises(MirrorError, match="cached models still serve") as mirrored:
        mirror("http://me:secret@127.0.0.1:9/", tmp_path)
    with pytest.raises(RegistryError) as listed:
        versions(uri="http://me:secret@127.0.0.1:9/")

    assert name in read_champions(tmp_path).bundles
    for text in (str(mirrored.value), str(listed.value)):
        assert "127.0.0.1:9" in text
        assert "no connection" in text
        assert len(text) < 200
        assert not any(word in text for word in ("secret", "Pool", "urllib3", "retries", "\n"))


def test_a_name_the_registry_does_not_know_is_said_so(uri: str) -> None:
    promote(track(model_of("nearby"), uri=uri).name, uri=uri)

    with pytest.raises(RegistryError, match="no such model, expected one that"):
        promote("runtime.pai.nearbi", uri=uri)
    with pytest.raises(RegistryError, match="no version 99, expected one that"):
        promote("runtime.pai.nearby", uri=uri, version=99)


def test_a_model_that_lost_the_alias_is_withdrawn(uri: str, mlflow_of: object, tmp_path: Path) -> None:
    name = promote(track(model_of("withdrawn"), uri=uri).name, uri=uri).name
    mirror_of(uri, tmp_path, name)
    mlflow_of.MlflowClient().delete_registered_model_alias(name, "champion")

    outcomes = {each.name: each.outcome for each in mirror(uri, tmp_path)}

    assert outcomes[name] == "withdrawn"
    assert name not in read_champions(tmp_path).bundles
