"""Commands that carry a plan out: for every change of a job, and refused for names that no system has."""

import pytest

from pipelines.connect.actuators import ACTUATORS, Change, carry_out, commands_of, shown
from pipelines.errors import BadUsage, SourceError


def row(job_id: str, gpus: int, mhz: float | None = None, **nodes: int) -> dict[str, object]:
    return {"job_id": job_id, "gpus": gpus, "mhz": mhz, "nodes": nodes}


def test_slurm_stops_jobs_before_others_start() -> None:
    rows = [row("1", 2), row("2", 0), row("3", 0), row("4", 1), row("5", 1), row("6", 0)]

    made = commands_of("slurm", rows, ran={"2", "4"}, suspended={"5", "6"})

    assert [shown(each) for each in made] == [
        "scontrol suspend 2",
        "scontrol hold 3",
        "scontrol release 1",
        "scontrol resume 5",
    ]


def test_kubernetes_suspends_and_resumes_a_job_of_a_namespace() -> None:
    made = commands_of("kubernetes", [row("team/a", 2), row("b", 0)], ran={"b"})

    assert [shown(each) for each in made] == [
        """kubectl patch job b --type=merge --patch '{"spec":{"suspend":true}}'""",
        """kubectl --namespace team patch job a --type=merge --patch '{"spec":{"suspend":false}}'""",
    ]


def test_clocks_are_locked_on_every_node_of_a_running_job_and_unlocked_without_one() -> None:
    made = commands_of("nvidia", [row("a", 9, 1140.0, n0=8, n1=1), row("b", 0, None), row("c", 1, None, n2=1)], ran=())

    assert [each[1:] for each in made] == [
        ("n0", "nvidia-smi", "--lock-gpu-clocks=0,1140"),
        ("n1", "nvidia-smi", "--lock-gpu-clocks=0,1140"),
        ("n2", "nvidia-smi", "--reset-gpu-clocks"),
    ]


def test_jobs_that_share_a_node_get_the_lowest_of_their_clocks_once() -> None:
    rows = [row("a", 2, 1530.0, n0=2), row("b", 4, 1140.0, n0=2, n1=2), row("c", 0, None)]

    assert [each[1::2] for each in commands_of("nvidia", rows, ran=())] == [
        ("n0", "--lock-gpu-clocks=0,1140"),
        ("n1", "--lock-gpu-clocks=0,1140"),
    ]


@pytest.mark.parametrize(
    ("name", "change"),
    [
        ("slurm", Change(job_id="--help", ran=False, runs=True, nodes={})),
        ("slurm", Change(job_id="12;rm", ran=True, runs=False, nodes={})),
        ("kubernetes", Change(job_id="../x", ran=False, runs=True, nodes={})),
        ("kubernetes", Change(job_id="-o", ran=False, runs=True, nodes={})),
        ("nvidia", Change(job_id="a", ran=False, runs=True, nodes={"-oProxyCommand=x": None})),
    ],
)
def test_names_that_could_be_options_or_programs_are_refused(name: str, change: Change) -> None:
    with pytest.raises(BadUsage, match="expected"):
        ACTUATORS[name](change)


def test_a_failed_command_is_reported_and_the_others_still_run() -> None:
    said: list[str] = []

    assert carry_out([("false",), ("true",)], say=said.append) == 1
    assert said == ["failed: false: "]
    with pytest.raises(SourceError, match="is not installed here"):
        carry_out([("taut-no-such-program",)], say=said.append)
