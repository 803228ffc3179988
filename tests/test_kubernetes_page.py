"""The page about Kubernetes: its steps are carried out against a service, and it names every setting and command."""

import json
from pathlib import Path

import pytest

from pipelines.cli.reference import command_paths
from pipelines.connect.kubernetes.config import FIELDS, KubernetesConfig
from tests.contract.frozen import differences
from tests.modelserve.running import running
from tests.own_cluster_examples import steps
from tests.serving_examples import ADDRESS, carry_out

PAGE = Path(__file__).resolve().parents[1] / "docs" / "kubernetes.md"
TEXT = PAGE.read_text(encoding="utf-8")


@pytest.mark.slow
def test_every_step_gives_the_answer_shown(tmp_path: Path) -> None:
    folder = tmp_path / "work"
    folder.mkdir()
    walked = list(steps(TEXT))
    assert [step.form for step in walked] == ["text", "json"]
    with running(tmp_path) as address:
        said = [carry_out(step.code, address, folder, "") for step in walked]

    assert said[0] == walked[0].answer
    assert differences(json.loads(walked[1].answer or ""), json.loads(said[1])) == [], said[1]
    assert ADDRESS in walked[1].code


def test_every_command_and_setting_is_named() -> None:
    assert all(
        f"taut kube {path[1]}" in TEXT
        for path in command_paths()
        if path[0] == "kube" and path[1:] not in [(), ("webhook",)]
    )
    settings = set(KubernetesConfig.model_fields) - {"gpu_type"}
    assert [name for name in settings if name not in TEXT] == []
    assert [name for name in FIELDS if f"{{{name}" not in TEXT] == []
