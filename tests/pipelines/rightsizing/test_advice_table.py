"""Tables of advice: severity by what is saved, raises marked."""

import pytest

from pipelines.rightsizing.table import advice_rows


def answer(target: float, raise_to: float | None = None) -> dict[str, object]:
    none = {f"{name}{of}": None for name in ("cpu_cores", "gpus") for of in ("", "_target", "_raise_to")}
    lower = {f"{name}_lower_bound": 1.0 for name in ("cpu_cores", "mem_gib", "gpus")}
    return {
        **none,
        **lower,
        "job_id": "a",
        "mem_gib": 10.0,
        "mem_gib_target": target,
        "mem_gib_raise_to": raise_to,
        "mem_gib_reason": "floor",
        "measured_runs": 9,
    }


@pytest.mark.parametrize(
    ("target", "raise_to", "severity", "saves"),
    [(4.0, None, "high", "60%"), (7.0, None, "medium", "30%"), (9.5, None, "low", "5%"), (10.0, None, None, "0%"),
     (10.0, 12.0, "raise", "-20%")],
)  # fmt: skip
def test_severity_is_by_the_share_saved(target: float, raise_to: float | None, severity: str, saves: str) -> None:
    [line] = advice_rows([answer(target, raise_to)])
    assert (line["severity"], str(line["saves"]).strip()) == (severity, saves)
