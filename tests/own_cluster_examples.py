"""The commands of `docs/own-cluster.md`: found in the page, carried out one after the other, or written anew.

No test stands here. Run by hand to write the answers of the page anew: `python -m tests.own_cluster_examples`; of
another page of the same form: `python -m tests.own_cluster_examples docs/prometheus.md`.
"""

import json
import re
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from tests.contract.frozen import differences
from tests.serving_examples import carry_out, laid_out

PAGE = Path(__file__).resolve().parents[1] / "docs" / "own-cluster.md"
STEP = re.compile(r"```sh\n(?P<code>.*?)```\n(?:\n```(?P<form>json|text)\n(?P<answer>.*?)```\n)?", re.DOTALL)


@dataclass(frozen=True, kw_only=True)
class Step:
    """A piece of shell on the page, and what is shown below it, if anything."""

    code: str
    form: str | None
    answer: str | None

    def said_in(self, folder: Path) -> str:
        """Return what it writes to stdout when carried out in a folder."""
        return carry_out(self.code, "", folder, "")


def steps(page: str) -> Iterator[Step]:
    """Yield the steps of a page, in its order."""
    for found in STEP.finditer(page):
        yield Step(code=found["code"], form=found["form"], answer=found["answer"])


def wrong_answers(page: str, folder: Path) -> list[str]:
    """Carry out the steps of a page; return each difference between an answer shown and the one found."""
    wrong = []
    for step in steps(page):
        said = step.said_in(folder)
        if step.form == "json":
            wrong += differences(json.loads(step.answer or ""), json.loads(said), step.code.partition("\n")[0])
        elif step.form == "text" and said != step.answer:
            wrong.append(f"{step.code}\nshown:\n{step.answer}\nfound:\n{said}")
    return wrong


def written_anew(page: str, folder: Path) -> str:
    """Return the page with every answer as it is found now."""
    made, at = [], 0
    for found, step in zip(STEP.finditer(page), steps(page), strict=True):
        said = step.said_in(folder)
        if step.form is not None:
            begin, end = found.span("answer")
            made += [page[at:begin], f"{laid_out(json.loads(said))}\n" if step.form == "json" else said]
            at = end
    return "".join([*made, page[at:]])


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as place:
        chosen = Path(sys.argv[1]) if sys.argv[1:] else PAGE
        text = chosen.read_text(encoding="utf-8")
        chosen.write_text(written_anew(text, Path(place)), encoding="utf-8")
