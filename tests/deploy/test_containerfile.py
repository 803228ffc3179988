"""The container file, as far as it can be judged without an engine: what it copies is there, what it installs is held
to hashes, it runs as nobody in particular, and what it compiles is what a worker needs."""

import os
import re
import shlex
import subprocess
import sys
import tomllib
import zipfile
from pathlib import Path

import pytest

from modelserve.settings import ServeSettings
from tests.modelserve.conftest import write_small_bundle

ROOT = Path(__file__).resolve().parents[2]
CONTAINERFILE = ROOT / "deploy" / "Containerfile"
BASE = "python:3.11-slim-bookworm"


@pytest.fixture(scope="module")
def stages() -> list[list[tuple[str, str]]]:
    """Return the instructions of each stage: (keyword, rest), continued lines joined."""
    text = re.sub(r"\\\n\s*", "", CONTAINERFILE.read_text())
    lines = [line for line in text.splitlines() if line.strip() and not line.startswith("#")]
    made: list[list[tuple[str, str]]] = [[]]
    for line in lines:
        keyword, _, rest = line.partition(" ")
        if keyword == "FROM":
            made.append([])
        made[-1].append((keyword, rest.strip()))
    return made[1:]


def every(stages: list[list[tuple[str, str]]], keyword: str) -> list[str]:
    return [rest for stage in stages for found, rest in stage if found == keyword]


def variables(stages: list[list[tuple[str, str]]]) -> dict[str, str]:
    words = [word for keyword, rest in stages[-1] if keyword == "ENV" for word in shlex.split(rest)]
    return dict(word.split("=", 1) for word in words)


def test_every_source_that_is_copied_exists(stages: list[list[tuple[str, str]]]) -> None:
    copied = [shlex.split(rest) for rest in every(stages, "COPY")]
    ours = [source for words in copied if not words[0].startswith("--from") for source in words[:-1]]

    assert ours
    assert [source for source in ours if not (ROOT / source).exists()] == []
    ignored, *kept = [line for line in (ROOT / ".dockerignore").read_text().splitlines() if line[0] in "*!"]
    assert ignored == "*"
    assert {line.removeprefix("!") for line in kept if line[0] == "!"} == {each.removeprefix("./") for each in ours}
    packages = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["hatch"]["build"]["targets"]["wheel"][
        "packages"
    ]
    assert set(packages) <= set(ours)


def test_what_is_installed_is_in_the_lock_and_held_to_hashes(stages: list[list[tuple[str, str]]]) -> None:
    commands = [part for rest in every(stages, "RUN") for part in re.split(r"&&|;", rest)]
    installs = [part for part in commands if re.search(r"\b(pip|uv|apt-get|apk|curl|wget)\b", part)]

    assert len(installs) == 2
    assert all("pip install" in part and "--require-hashes" in part for part in installs)


def test_the_lock_holds_the_drivers_of_what_the_manifests_name() -> None:
    locked = {line.partition("==")[0] for line in (ROOT / "requirements.lock").read_text().splitlines() if "==" in line}
    assert {"psycopg", "psycopg-binary", "boto3", "mlflow"} <= locked


def test_it_is_not_root_and_says_how_to_ask_whether_it_lives(stages: list[list[tuple[str, str]]]) -> None:
    last = stages[-1]
    keywords = [keyword for keyword, _ in last]

    assert [rest for keyword, rest in last if keyword == "USER"] == ["10001:10001"]
    assert keywords.index("USER") > max(at for at, keyword in enumerate(keywords) if keyword == "RUN")
    assert "/healthz" in dict(last)["HEALTHCHECK"]
    assert dict(last)["ENTRYPOINT"] == '["taut", "serve"]'


def test_its_variables_are_settings_and_all_that_is_written_is_a_volume(
    stages: list[list[tuple[str, str]]], monkeypatch: pytest.MonkeyPatch
) -> None:
    said = variables(stages)
    for name, value in said.items():
        monkeypatch.setenv(name, value)
    with pytest.raises(ValueError, match="TAUT_SERVE_TOKENS"):  # without tokens it does not start
        ServeSettings()
    monkeypatch.setenv("TAUT_SERVE_HOST", "127.0.0.1")
    settings = ServeSettings()
    volumes = dict(stages[-1])["VOLUME"]

    ours = {name.removeprefix("TAUT_SERVE_").lower() for name in said if name.startswith("TAUT_SERVE_")}
    assert ours <= set(ServeSettings.model_fields)
    written = [str(settings.bundles.parent), said["NUMBA_CACHE_DIR"], said["HOME"], "/var/lib/taut"]
    assert str(settings.store) == "sqlite:////var/lib/taut/serve.db"
    assert [place for place in written if f'"{place}"' not in volumes] == []


@pytest.mark.slow
def test_the_wheel_that_is_built_holds_every_package(tmp_path: Path, stages: list[list[tuple[str, str]]]) -> None:
    [build] = [rest for rest in every(stages, "RUN") if "hatchling" in rest]
    command = shlex.split(build.replace("/build/dist", str(tmp_path)))
    assert command[0] == "python"

    subprocess.run([sys.executable, *command[1:]], cwd=ROOT, check=True, capture_output=True, timeout=60)

    [wheel] = tmp_path.glob("*.whl")
    names = zipfile.ZipFile(wheel).namelist()
    for part in ("features/", "pipelines/cli/serving.py", "modelserve/server/worker.py", "scheduler_core/"):
        assert any(name.startswith(part) for name in names), part


@pytest.mark.slow
def test_what_is_compiled_at_build_is_all_that_a_worker_needs(tmp_path: Path) -> None:
    environment = {**os.environ, "NUMBA_CACHE_DIR": str(tmp_path / "cache"), "NUMBA_CPU_NAME": "generic"}
    warm = [sys.executable, str(ROOT / "deploy" / "warm_cache.py")]
    subprocess.run(warm, env=environment, cwd=ROOT, check=True, capture_output=True, timeout=600)
    built = compiled(tmp_path / "cache")

    for kind in ("runtime", "usage"):
        write_small_bundle(tmp_path / kind, kind)
    code = (
        "import sys; from pathlib import Path\n"
        "from tests.modelserve.mirrored import Folder, models_of\n"
        "folder = Folder(Path(sys.argv[1]), {kind: Path(sys.argv[1]).parent / kind for kind in ('runtime', 'usage')})\n"
        "folder.add('runtime.pai.ctr', '1'); folder.add('usage.pai.ctr', '1')\n"
        "assert {each.result for each in models_of(folder.path).refresh()} == {'loaded'}\n"
        "from modelserve.loading.rules import prepare; prepare()\n"
    )
    load = [sys.executable, "-c", code, str(tmp_path / "mirrored")]
    subprocess.run(load, env=environment, cwd=ROOT, check=True, timeout=120)

    assert {"compiled", "kernels", "clock"} <= {name.partition(".")[0] for name in built}
    assert compiled(tmp_path / "cache") == built


def compiled(folder: Path) -> set[str]:
    return {path.name for path in folder.rglob("*.nbc")}
