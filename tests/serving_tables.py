"""The tables in `docs/serving.md`: endpoints, settings and metrics; `python -m tests.serving_tables` writes them."""

import re
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Final

from pydantic_core import PydanticUndefined

from modelserve.api.app import OPERATIONS
from modelserve.api.metrics import Metrics
from modelserve.settings import PREFIX, ServeSettings

PAGE: Final = Path(__file__).resolve().parents[1] / "docs" / "serving.md"

_HELP: Final = re.compile(r"^# HELP (\S+) (.*)\n# TYPE \S+ (\S+)$", re.MULTILINE)


def with_tables(page: str) -> str:
    """Return the page with its tables replaced; each stands between `<!-- name -->` and `<!-- /name -->`."""
    for name, table in {"endpoints": endpoints(), "settings": settings(), "metrics": metrics()}.items():
        before, _, rest = page.partition(f"<!-- {name} -->\n")
        _, end, after = rest.partition(f"<!-- /{name} -->")
        page = f"{before}<!-- {name} -->\n{table}\n{end}{after}"
    return page


def endpoints() -> str:
    """Return the Markdown table of the operations."""
    return _table(("call", "answers"), [(f"`{each.method} {each.path}`", each.summary) for each in OPERATIONS])


def settings() -> str:
    """Return the Markdown table of the settings and their defaults."""
    rows = []
    for name, field in ServeSettings.model_fields.items():
        default = field.get_default(call_default_factory=True)
        nothing = default in (None, PydanticUndefined, (), {})
        rows.append((f"`{PREFIX}{name.upper()}`", "" if nothing else f"`{default}`", field.description or ""))
    return _table(("variable", "default", "meaning"), rows)


def metrics() -> str:
    """Return the Markdown table of the metrics, with the descriptions that `/metrics` shows."""
    rows = [(f"`{name}`", kind, text) for name, text, kind in _HELP.findall(Metrics().page().decode())]
    return _table(("metric", "type", "meaning"), sorted(rows))


def _table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join("| " + " | ".join(cell.replace("|", r"\|") for cell in line) + " |" for line in lines)


if __name__ == "__main__":
    PAGE.write_text(with_tables(PAGE.read_text(encoding="utf-8")), encoding="utf-8")
