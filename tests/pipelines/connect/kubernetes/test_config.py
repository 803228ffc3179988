"""The configuration file: what it may say, and what is named if it is wrong; quantities are read exactly."""

from fractions import Fraction
from pathlib import Path

import pytest

from pipelines.connect.kubernetes.config import WebhookMode, read_config
from pipelines.connect.kubernetes.objects import BadQuantity, quantity
from pipelines.errors import BadUsage

WHOLE = """
trace = "pai"
cluster = "c1"
mode = "off"
group = ["{label:team}/{container}", "{owner}"]
guaranteed = "shrink"

[namespaces]
ml = "enforce"

[gpus]
"nvidia.com/gpu" = 1
"nvidia.com/mig-1g.10gb" = 0.125

[[limit_ranges]]
namespace = "ml"
min = { cpu = "500m", memory = "1Gi" }
max_limit_request_ratio = { cpu = 4 }
"""


def test_a_file_is_read(tmp_path: Path) -> None:
    file = tmp_path / "kubernetes.toml"
    file.write_text(WHOLE)

    config = read_config(file)

    assert (config.mode_of("ml"), config.mode_of("else")) == (WebhookMode.ENFORCE, WebhookMode.OFF)
    [item] = config.ranges_of("ml")
    assert item.min == {"cpu": Fraction(1, 2), "memory": Fraction(2**30)}
    assert config.ranges_of("else") == []


def test_limit_ranges_of_an_api_server_are_as_if_stated(tmp_path: Path) -> None:
    file = tmp_path / "kubernetes.toml"
    file.write_text(WHOLE)
    stated = read_config(file)
    amounts = {
        "min": {"cpu": "500m", "memory": "1Gi", "ephemeral-storage": "1Gi"},
        "maxLimitRequestRatio": {"cpu": "4"},
    }
    items = [{"type": "Container", "default": {"cpu": "1"}, **amounts}, {"type": "PersistentVolumeClaim"}]
    found = {"metadata": {"name": "r", "namespace": "ml"}, "spec": {"limits": items}}

    read = stated.model_copy(update={"limit_ranges": ()}).with_limit_ranges([found, {}])

    assert read == stated


@pytest.mark.parametrize(
    ("text", "named"),
    [
        ('mode = "warn"', "trace"),
        ('trace = "a"\nmode = "on"', "mode"),
        ('trace = "a"\ngroup = ["{label}"]', "group.0"),
        ('trace = "a"\ngroup = ["{secret:x}"]', "group.0"),
        ('trace = "a"\ngroup = ["plain"]', "group.0"),
        ('trace = "a"\n[[limit_ranges]]\nmin = { cpu = "5 m" }', "limit_ranges.0.min.cpu"),
        ('trace = "a"\n[[limit_ranges]]\nmax_limit_request_ratio = { cpu = 0.5 }', "limit_ranges.0.max"),
        ('trace = "a"\nnamespace = {}', "namespace"),
        ('trace = "a', "not TOML"),
        (None, "cannot be read"),
    ],
)
def test_what_is_wrong_is_named(tmp_path: Path, text: str | None, named: str) -> None:
    file = tmp_path / "kubernetes.toml"
    if text is not None:
        file.write_text(text)

    with pytest.raises(BadUsage, match=named):
        read_config(file)


@pytest.mark.parametrize(
    "value", ["", "-1", "1 Gi", "Gi", "1gi", "1e999", "nan", "inf", "0x1", "1" * 40, True, None, [], float("nan")]
)
def test_what_is_no_quantity_is_refused(value: object) -> None:
    with pytest.raises(BadQuantity):
        quantity(value)
