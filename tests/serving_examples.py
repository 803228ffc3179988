"""The examples of `docs/serving.md`: found in the page, carried out against a service, compared or written anew.

No test stands here. Run by hand to write the answers of the page anew: `python -m tests.serving_examples`.
"""

import json
import os
import re
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from tests.contract.frozen import short
from tests.modelserve.running import running

ROOT = Path(__file__).resolve().parents[1]
PAGE = ROOT / "docs" / "serving.md"
ADDRESS = "http://127.0.0.1:8080"
ANSWER_ID = "ANSWER_ID"

EXAMPLE = re.compile(
    r"```(?P<kind>sh|pycon)\n(?P<code>.*?)```\n(?:\n```(?P<form>json|text)\n(?P<answer>.*?)```\n)?", re.DOTALL
)
NOT_RUN = ("taut serve", "taut token")
"""Commands that are shown and not carried out here; that they and their options exist is tested beside."""


@dataclass(frozen=True, kw_only=True)
class Example:
    """A piece of code on the page, and the answer that is shown below it, if any."""

    kind: str
    code: str
    form: str | None
    answer: str | None
    line: int
    span: tuple[int, int] | None

    @property
    def runs(self) -> bool:
        return not self.code.startswith(NOT_RUN)


def examples(page: str) -> Iterator[Example]:
    """Yield the examples of a page, in its order."""
    for found in EXAMPLE.finditer(page):
        yield Example(
            kind=found["kind"],
            code=found["code"],
            form=found["form"],
            answer=found["answer"],
            line=page[: found.start()].count("\n") + 1,
            span=found.span("answer") if found["answer"] is not None else None,
        )


def carry_out(code: str, address: str, folder: Path, answer_id: str) -> str:
    """Run a piece of shell in a folder, against the service at an address; return what it writes to stdout."""
    script = code.replace(ADDRESS, address).replace(ANSWER_ID, answer_id)
    ours = {"PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}", "OMP_NUM_THREADS": "1"}
    kept = {name: value for name, value in os.environ.items() if not name.startswith("TAUT_")}
    done = subprocess.run(
        ["sh", "-euc", script], capture_output=True, text=True, timeout=120, cwd=folder, env=kept | ours, check=False
    )
    assert done.returncode == 0, f"{code}\nexit {done.returncode}: {done.stderr}"
    return done.stdout


def last_answer_id(text: str, before: str) -> str:
    """Return the id of the recommendation in an answer, or the one before it."""
    found = re.search(r'"answer_id": ?"([^"]+)"', text) if '"recommendations"' in text else None
    return found[1] if found else before


def laid_out(value: object, width: int = 112, indent: int = 0) -> str:
    """Write JSON for a page: what fits on a line stays on it; floats with six digits."""
    flat = json.dumps(short(value))
    if len(flat) + indent <= width or not isinstance(value, dict | list) or not value:
        return flat
    inner = " " * (indent + 2)
    if isinstance(value, dict):
        parts = [f"{json.dumps(key)}: {laid_out(each, width, indent + 2)}" for key, each in value.items()]
        opened, closed = "{", "}"
    else:
        parts = [laid_out(each, width, indent + 2) for each in value]
        opened, closed = "[", "]"
    return opened + "\n" + ",\n".join(inner + part for part in parts) + "\n" + " " * indent + closed


def written_anew(page: str, address: str, folder: Path) -> str:
    """Return the page with the answers that a service gives; Python's examples are carried out, and stay."""
    made, at, answer_id = [], 0, ""
    names: dict[str, object] = {}
    for example in examples(page):
        if example.kind == "pycon":
            _run_python(example.code.replace(ADDRESS, address), names)
        elif example.runs:
            said = carry_out(example.code, address, folder, answer_id)
            answer_id = last_answer_id(said, answer_id)
            if example.span is not None:
                shown = f"{laid_out(json.loads(said))}\n" if example.form == "json" else said
                made += [page[at : example.span[0]], shown]
                at = example.span[1]
    client = names.get("client")
    if client is not None:
        client.close()
    return "".join([*made, page[at:]])


def _run_python(code: str, names: dict[str, object]) -> None:
    lines = [line for line in code.splitlines() if line.startswith((">>> ", "... ", "..."))]
    source = "\n".join(line[4:] for line in lines)
    exec(compile(source, "serving.md", "exec"), names)


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as place, running(Path(place)) as found:
        PAGE.write_text(written_anew(PAGE.read_text(encoding="utf-8"), found, Path(place)), encoding="utf-8")
