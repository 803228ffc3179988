"""Read texts and TOML, replace texts in one step, and fill templates with slots."""

import os
import re
import tomllib
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, Final, TypeVar

from pydantic import BaseModel, ValidationError

from modelserve.bundle.card import complaint
from pipelines.errors import BadUsage

MOST_BYTES: Final = 50_000_000
_SLOT: Final = re.compile(r"@([A-Z]+)@")

Settings = TypeVar("Settings", bound=BaseModel)


def text_in(path: Path, *, expected: str) -> str:
    """Return the text in a file; `expected` names the file in errors."""
    try:
        if path.stat().st_size > MOST_BYTES:
            raise BadUsage(f"{path}: found more than {MOST_BYTES} bytes; expected {expected}")
        return path.read_text(encoding="utf-8")
    except UnicodeDecodeError as error:
        raise BadUsage(f"{path}: found bytes that are not UTF-8 text; expected {expected}") from error
    except OSError as error:
        raise BadUsage(f"{path}: cannot be read ({error.strerror}); expected {expected}") from error


def table_in(path: Path, *, expected: str) -> dict[str, Any]:  # TOML holds any type; callers validate it
    """Return the content of a TOML file."""
    try:
        return tomllib.loads(text_in(path, expected=expected))
    except tomllib.TOMLDecodeError as error:
        raise BadUsage(f"{path}: not TOML: {error}; expected {expected}") from error


def settings_in(path: Path, kind: type[Settings], *, expected: str) -> Settings:
    """Return the settings in a TOML file."""
    try:
        return kind.model_validate(table_in(path, expected=expected))
    except ValidationError as error:
        raise BadUsage(f"{path}: {complaint(error)}") from error


def replace_text(target: Path, text: str, *, public: bool = False) -> None:
    """Replace a text file in one step; everybody may read a public file, and execute one named `*.sh`."""
    part = target.with_name(f".{target.name}.{os.getpid()}")
    part.write_text(text, encoding="utf-8", newline="")
    if public:
        part.chmod(0o755 if target.suffix == ".sh" else 0o644)
    part.replace(target)


def write_templates(
    out: Path, templates: Path, files: Mapping[str, str], slots: Mapping[str, str], *, kept: str
) -> list[dict[str, str]]:
    """Write templates to a folder with slots such as `@URL@` filled in, and return a row for each: file and purpose.

    `files` holds the purpose by name. An existing file named `kept` stays, since it is edited by hand.
    """
    try:
        out.mkdir(parents=True, exist_ok=True)
        for name in files:
            if name != kept or not (out / name).exists():
                text = (templates / name).read_text(encoding="utf-8")
                replace_text(out / name, _SLOT.sub(lambda found: slots[found[1]], text), public=True)
    except OSError as error:
        raise BadUsage(f"--out {out}: {error.strerror}; expected a folder that this user may write to") from error
    return [{"file": str(out / name), "what": what} for name, what in files.items()]


def check_texts(texts: Iterable[tuple[str, str]], patterns: Mapping[str, tuple[str, str]]) -> None:
    """Check values for slots by the name of their option (a slot has no quotes); `patterns` also describe what fits."""
    for name, value in texts:
        pattern, expected = patterns[name]
        if not re.fullmatch(pattern, value):
            raise BadUsage(f"--{name} {value[:60]!r}: expected {expected}")
