"""Power files: the shipped figures, a site's own over them, and faults that are named."""

from pathlib import Path

import pytest

from pipelines.errors import BadUsage
from pipelines.simulation.energy.power_file import power_file
from scheduler_core.cluster import Machine


def machine(name: str = "m", gpu_type: str | None = None, cpu_cores: float = 96.0, gpus: int = 8) -> Machine:
    return Machine(name=name, cpu_cores=cpu_cores, mem_gib=0.0, gpus=gpus, gpu_type=gpu_type)


def own(folder: Path, text: str) -> Path:
    path = folder / "site.toml"
    path.write_text(text)
    return path


@pytest.mark.parametrize(
    ("gpu_type", "cores", "gpus", "idle_w", "full_w"),
    [
        ("T4", 96.0, 2, 2 * 20 + 2 * 10, 2 * 165 + 2 * 70),
        ("P100", 64.0, 2, 2 * 15 + 2 * 25, 2 * 120 + 2 * 250),
        ("A100", 104.0, 8, 2 * 20 + 8 * 50, 2 * 205 + 8 * 400),
        (None, 0.0, 8, 2 * 20 + 8 * 30, 2 * 165 + 8 * 300),
        ("CPU", 96.0, 0, 2 * 20, 2 * 165),
    ],
)
def test_shipped_figures_by_gpu_type_and_cores(
    gpu_type: str | None, cores: float, gpus: int, idle_w: float, full_w: float
) -> None:
    each = machine(gpu_type=gpu_type, cpu_cores=cores, gpus=gpus)
    node = power_file().node(each)

    assert node.idle_w(gpus) == pytest.approx(idle_w)
    assert node.cpu_full_w + gpus * node.gpu_full_w == pytest.approx(full_w)


def test_a_site_lays_its_own_figures_over_the_shipped(tmp_path: Path) -> None:
    table = power_file(
        own(
            tmp_path,
            """
            pue = 1.4
            [gpus.V100M32]
            idle_w = 40
            full_w = 350
            [gpus.H100]
            idle_w = 70
            full_w = 700
            [hosts]
            H100 = "8269CY"
            [machines.login]
            cpu_idle_w = 100
            cpu_full_w = 200
            """,
        )
    )

    assert table.pue == 1.4
    assert table.source == "site.toml over the shipped table"
    assert table.node(machine(gpu_type="V100M32")).gpu_full_w == 350.0
    assert table.node(machine(gpu_type="V100")).gpu_full_w == 300.0
    assert table.node(machine(gpu_type="H100", cpu_cores=104.0)).cpu_full_w == 410.0
    assert table.node(machine(name="login", gpus=0)).idle_w(0) == 100.0


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("pue = 0.5", "pue: expected at least 1"),
        ("[gpus.T4]\nidle_w = false\nfull_w = 70", "gpus.T4.idle_w: expected a number"),
        ("[gpus.T4]\nidle_w = 10", "gpus.T4.full_w: missing"),
        ("[gpus.T4]\nidle_w = 80\nfull_w = 70", "gpus.T4: found 80.0 W idle and 70.0 W full"),
        ("[gpus.T4]\nidle_w = -1\nfull_w = 70", "gpus.T4.idle_w"),
        ("[gpus.T4]\nidle_w = 10\nfull_w = 70\nwatts = 1", "gpus.T4.watts: no such field"),
        ("[gpus.X]\nidle_w = 10\nfull_w = 70\nalso = ['T4']", "several figures of 'T4'"),
        (
            "[hosts]\nT4 = 'Z80'",
            "site.toml: found the CPU 'Z80' without figures, expected one of 8163, 8269CY, E5-2682v4",
        ),
        ("[defaults]\ncpu = 'Z80'\n[hosts]\nT4 = '9999'", "site.toml: found the CPU '9999', 'Z80' without figures"),
        (
            "[defaults]\ngpu = 'none'",
            "site.toml: found the GPU 'none' without figures, expected one of A10, A100, P100",
        ),
        ("gpus = 3", "gpus: expected an object with named fields"),
        ("[gpus", "is not valid TOML"),
        ("[unknown_use]\ngpu_frac = 2", "unknown_use.gpu_frac"),
    ],
)
def test_faults_are_named(tmp_path: Path, text: str, said: str) -> None:
    with pytest.raises(BadUsage) as refused:
        power_file(own(tmp_path, text))
    assert said in str(refused.value)
    assert "site.toml" in str(refused.value)


def test_the_example_of_the_manual_is_a_power_file(tmp_path: Path) -> None:
    manual = (Path(__file__).parents[4] / "docs" / "energy.md").read_text()
    example = manual[manual.index("    pue = 1.35") :]

    table = power_file(own(tmp_path, example[: example.index("\n\n")]))

    assert (table.pue, table.node(machine(gpu_type="H100", cpu_cores=192.0)).cpu_full_w) == (1.35, 360.0)
