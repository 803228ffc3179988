import hashlib
import json
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from modelserve.bundle.bundle import read_bundle
from modelserve.bundle.card import Card
from modelserve.errors import BundleError

FILES = {
    "runtime": [
        *sorted({"card.json", "checksums.json", "contract.json", "history.parquet", "importances.json"}),
        "models/run_s.ubj",
    ],
    "usage": [f"models/{target}.ubj" for target in ("cpu_cores", "mem_gib", "gpus", "gpu_mem_gib")],
}
EVERY_FILE = [(kind, name) for kind, names in FILES.items() for name in names]


@pytest.fixture
def copy_of(small_bundles: dict[str, Path], tmp_path: Path) -> Callable[[str], Path]:
    def copied(kind: str) -> Path:
        return Path(shutil.copytree(small_bundles[kind], tmp_path / kind))

    return copied


def rewrite(folder: Path, name: str, change: Callable[[dict], None]) -> None:
    """Change a JSON file and its checksum, as someone would who knows the format."""
    content = json.loads((folder / name).read_text())
    change(content)
    (folder / name).write_text(json.dumps(content))
    reseal(folder, name)


def reseal(folder: Path, name: str) -> None:
    checksums = json.loads((folder / "checksums.json").read_text())
    checksums[name] = hashlib.sha256((folder / name).read_bytes()).hexdigest()
    (folder / "checksums.json").write_text(json.dumps(checksums))


def files_of(folder: Path) -> dict[str, bytes]:
    return {str(p.relative_to(folder)): p.read_bytes() for p in folder.rglob("*") if p.is_file()}


def test_a_bundle_comes_back_as_it_was_written(small_bundles: dict[str, Path]) -> None:
    bundle = read_bundle(small_bundles["usage"], version="3")

    assert bundle.reference == "usage.pai.ctr@3"
    assert set(bundle.boosters) == {"cpu_cores", "mem_gib", "gpus", "gpu_mem_gib"}
    assert bundle.contract.fingerprint == bundle.card.contract_fingerprint
    assert bundle.history.trace == "pai"
    assert bundle.card.metrics == {"pinball": 0.2, "lead": None}
    assert [i.feature for i in bundle.importances] == ["req_gpus"]


def test_the_same_inputs_give_the_same_bytes(
    small_bundles: dict[str, Path], write_bundle_of: Callable[..., str], tmp_path: Path
) -> None:
    digest = write_bundle_of(tmp_path / "again", "runtime")

    assert files_of(tmp_path / "again") == files_of(small_bundles["runtime"])
    assert digest == read_bundle(small_bundles["runtime"]).digest


def test_a_bundle_is_never_written_over_another(write_bundle_of: Callable[..., str], tmp_path: Path) -> None:
    (tmp_path / "taken").mkdir()

    with pytest.raises(BundleError, match="already exists"):
        write_bundle_of(tmp_path / "taken")

    assert [p.name for p in tmp_path.iterdir()] == ["taken"]


def test_a_write_that_fails_leaves_nothing(
    write_bundle_of: Callable[..., str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(self: Path, target: Path) -> Path:
        raise OSError("no space left on device")

    monkeypatch.setattr(Path, "rename", full)

    with pytest.raises(OSError, match="no space"):
        write_bundle_of(tmp_path / "new")

    assert list(tmp_path.iterdir()) == []


def flipped(file: Path, _: Path) -> None:
    data = bytearray(file.read_bytes())
    data[len(data) // 2] ^= 1
    file.write_bytes(data)


DAMAGES: dict[str, tuple[Callable[[Path, Path], object], str | None]] = {
    "a changed byte": (flipped, None),
    "cut short": (lambda file, _: file.write_bytes(file.read_bytes()[:-5]), None),
    "missing": (lambda file, _: file.unlink(), None),
    "a link to the right bytes": (lambda file, source: (file.unlink(), file.symlink_to(source)), "link"),
}


@pytest.mark.parametrize("damage", DAMAGES)
@pytest.mark.parametrize(("kind", "name"), EVERY_FILE)
def test_a_damaged_file_is_noticed(
    copy_of: Callable[[str], Path], small_bundles: dict[str, Path], kind: str, name: str, damage: str
) -> None:
    folder, (change, said) = copy_of(kind), DAMAGES[damage]
    change(folder / name, small_bundles[kind] / name)

    with pytest.raises(BundleError, match=said):
        read_bundle(folder)


@pytest.mark.parametrize("name", ["model.pkl", "models/run_s.pkl", ".card.json.swp", "models/sub/x.ubj"])
def test_a_file_that_no_bundle_has_is_refused(copy_of: Callable[[str], Path], name: str) -> None:
    folder = copy_of("runtime")
    (folder / name).parent.mkdir(exist_ok=True)
    (folder / name).write_bytes(b"x")

    with pytest.raises(BundleError, match="expected only"):
        read_bundle(folder)


@pytest.mark.parametrize("name", ["../outside.json", "/etc/hostname", "models/../../outside.json"])
def test_a_checksum_of_a_file_outside_is_refused(copy_of: Callable[[str], Path], name: str) -> None:
    folder = copy_of("runtime")
    (folder.parent / "outside.json").write_text("{}")
    checksums = json.loads((folder / "checksums.json").read_text())
    (folder / "checksums.json").write_text(json.dumps({**checksums, name: "0" * 64}))

    with pytest.raises(BundleError, match="missing"):
        read_bundle(folder)


@pytest.mark.parametrize("data", [b"", b"{}", b"[]", b"\xff\xfe", b'{"card.json": 3}', b"null"])
def test_checksums_that_are_none_are_refused(copy_of: Callable[[str], Path], data: bytes) -> None:
    folder = copy_of("runtime")
    (folder / "checksums.json").write_bytes(data)

    with pytest.raises(BundleError):
        read_bundle(folder)


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"format": 2}, "format"),
        ({"surprise": 1}, "surprise"),
        ({"trace": "helios"}, "runtime.helios.ctr"),
        ({"name": "runtime.pai.../../x"}, "name"),
        ({"targets": ["cpu_cores"]}, "targets"),
        ({"contract_fingerprint": "0" * 64}, "fingerprint"),
        ({"quantiles": [0.1, 0.5, 0.9]}, "2 outputs, expected 3"),
        ({"rows": -1}, "rows"),
        ({"response": {"trusted": True, "why": "it leads", "rows": 9}}, "expected .*response.ubj"),
    ],
)
def test_a_card_that_does_not_fit_is_refused(
    copy_of: Callable[[str], Path], change: dict[str, object], said: str
) -> None:
    folder = copy_of("runtime")
    rewrite(folder, "card.json", lambda card: card.update(change))

    with pytest.raises(BundleError, match=said):
        read_bundle(folder)


def test_a_model_of_other_features_is_refused(copy_of: Callable[[str], Path], small_bundles: dict[str, Path]) -> None:
    folder = copy_of("runtime")
    shutil.copy(small_bundles["usage"] / "models" / "gpus.ubj", folder / "models" / "run_s.ubj")
    reseal(folder, "models/run_s.ubj")

    with pytest.raises(BundleError, match=r"takes \d+ features, expected \d+"):
        read_bundle(folder)


def test_a_folder_that_is_not_there_is_said_to_be(tmp_path: Path) -> None:
    with pytest.raises(BundleError, match="not a folder"):
        read_bundle(tmp_path / "nothing")


def test_histories_are_shared_by_content(small_bundles: dict[str, Path]) -> None:
    histories: dict = {}

    one = read_bundle(small_bundles["runtime"], histories=histories)
    two = read_bundle(small_bundles["usage"], histories=histories)

    assert one.history is two.history
    assert len(histories) == 1


def test_the_schema_of_a_card_refuses_what_is_no_number(bundles: dict) -> None:
    said = bundles["runtime.pai.ctr"].card.model_dump()

    with pytest.raises(ValueError, match="finite"):
        Card.model_validate({**said, "offsets": {"p50": float("inf")}})
