"""Command lines of `taut simulate`: words such as `overtakes = 0` become lines of a settings file."""

from pathlib import Path


def command(folder: Path, *words: str) -> list[str]:
    """Return the words of the command, with a settings file in the folder if a word is a line of TOML."""
    lines = [word for word in words if " = " in word]
    options = [word for word in words if word not in lines]
    if not lines:
        return ["simulate", *options]
    file = folder / "settings.toml"
    file.write_text("\n".join(lines), encoding="utf-8")
    return ["simulate", *options, "--settings", str(file)]
