"""Files of this room: settings in TOML, texts that are replaced at once, and templates with slots."""

import os
import re
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Final, TypeVar

from pydantic import BaseModel, ValidationError

from modelserve.bundle.card import complaint
from pipelines.errors import BadUsage

_SLOT: Final = re.compile(r"@([A-Z]+)@")

Settings = TypeVar("Settings", bound=BaseModel)


def settings_in(path: Path, kind: type[Settings], *, expected: str) -> Settings:
    """Return the settings in a TOML file; `expected` names the file in errors."""
    try:
        return kind.model_validate(tomllib.loads(path.read_text(encoding="utf-8")))
    except ValidationError as error:
        raise BadUsage(f"{path}: {complaint(error)}") from error
    except (OSError, UnicodeError) as error:
        raise BadUsage(f"{path}: cannot be read ({type(error).__name__}); expected {expected}") from error
    except tomllib.TOMLDecodeError as error:
        raise BadUsage(f"{path}: not TOML: {error}; expected {expected}") from error


def replace_text(target: Path, text: str, *, public: bool = False) -> None:
    """Write a text file in place of what is there; everybody may read a public one, and execute one named `*.sh`."""
    part = target.with_name(f".{target.name}.{os.getpid()}")
    part.write_text(text, encoding="utf-8", newline="")
    if public:
        part.chmod(0o755 if target.suffix == ".sh" else 0o644)
    part.replace(target)


def filled(template: Path, slots: Mapping[str, str]) -> str:
    """Return a template's text with its slots, such as `@URL@`, filled in."""
    return _SLOT.sub(lambda found: slots[found[1]], template.read_text(encoding="utf-8"))
