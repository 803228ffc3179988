"""The house rules that no linter holds: rooms, their public names, light package roots, and plain words.

A room is a folder of a package; the files at a package's root are one room.
"""

import ast
import re
import subprocess
import sys
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
PACKAGES = ("features", "scheduler_core", "modelserve", "pipelines", "taut")

MOST_NAMES_BETWEEN_PACKAGES = 297
MOST_NAMES_BETWEEN_ROOMS = 581
"""Of one package."""

HEAVY = ("duckdb", "fastapi", "mlflow", "numba", "numpy", "pandas", "polars", "pydantic", "sklearn", "xgboost")
"""Imports that cost more than a few milliseconds."""

BANNED = (
    "the like",
    "its like",
    "for want of",
    "cannot be meant",
    "can be meant",
    "nobody",
    "is told",
    "are told",
    "was told",
    "what was said",
    "whoever",
    "is asked about",
    "minds fragmentation",
)
"""A floor, not the goal: phrases that readers of other mother tongues had to read twice."""

Taken = tuple[str, str, str, str]
"""Importing room, owning room, owning module, name."""


@cache
def modules() -> dict[str, Path]:
    """Return every module of the packages by its dotted name."""
    found = {}
    for package in PACKAGES:
        for path in sorted((ROOT / package).rglob("*.py")):
            parts = path.relative_to(ROOT).with_suffix("").parts
            found[".".join(parts[:-1] if parts[-1] == "__init__" else parts)] = path
    return found


def room(module: str) -> str:
    """Return the room of a module: its first folder below the package, else the package."""
    parts = module.split(".")
    inside = len(parts) > 2 or (len(parts) == 2 and modules()[module].name == "__init__.py")
    return ".".join(parts[:2]) if inside and parts[0] != "features" else parts[0]


IMPORTS = re.compile(rf"^ *from ((?:{'|'.join(PACKAGES)})(?:\.\w+)*) import (\([^)]*\)|.*)", re.MULTILINE)
PUBLIC = re.compile(r"^__all__ = (\[.*?\])", re.MULTILINE | re.DOTALL)
"""As the formatter lays out code: reading it takes a tenth of the time of building syntax trees."""


@cache
def text(module: str) -> str:
    """Return the code of a module."""
    return modules()[module].read_text(encoding="utf-8")


@cache
def taken() -> frozenset[Taken]:
    """Return every name that one room imports from another."""
    found = set()
    for module in modules():
        for source, names in IMPORTS.findall(text(module)):
            for part in re.sub(r"#.*", "", names).strip("()").split(","):
                if not (imported := part.split(" as ")[0].strip()):
                    continue
                whole = f"{source}.{imported}"
                owner, name = (whole, "*") if whole in modules() else (source, imported)
                if room(owner) != room(module):
                    found.add((room(module), room(owner), owner, name))
    return frozenset(found)


@cache
def public(module: str) -> set[str]:
    """Return the names in a module's `__all__`."""
    found = PUBLIC.search(text(module))
    return set(ast.literal_eval(found[1])) if found else set()


def test_what_a_room_takes_from_another_is_public_there() -> None:
    private = sorted(
        f"{taker} takes {module}.{name}"
        for taker, _, module, name in taken()
        if name != "*" and name not in public(module)
    )
    assert not private, f"add to __all__, or import less: {private[:20]}"


def test_rooms_take_few_names_from_each_other() -> None:
    between: dict[bool, set[tuple[str, str]]] = {True: set(), False: set()}
    for taker, owner, module, name in taken():
        between[taker.partition(".")[0] == owner.partition(".")[0]].add((module, name))
    assert len(between[False]) <= MOST_NAMES_BETWEEN_PACKAGES
    assert len(between[True]) <= MOST_NAMES_BETWEEN_ROOMS


def test_modules_named_in_texts_exist() -> None:
    dotted = re.compile(rf"(?<![\w./])((?:{'|'.join(PACKAGES)})(?:\.[a-z_][a-z_0-9]*)+)")
    stale = [f"{place}: {name}" for place, line in words() for name in dotted.findall(line) if not resolves(name)]
    assert not stale, f"{len(stale)} names of modules that do not exist: {stale[:20]}"


def resolves(name: str) -> bool:
    """Return whether a dotted name is a module, or a name that occurs in the text of one."""
    if name in modules() or name.count(".") == 1:  # a frame called `features` has attributes, too
        return True
    module, _, attribute = name.rpartition(".")
    if module not in modules():
        return "." in module and resolves(module)
    return re.search(rf"\b{attribute}\b", text(module)) is not None


@pytest.mark.parametrize("package", PACKAGES)
def test_the_root_of_a_package_imports_nothing_heavy(package: str) -> None:
    seen = f"import sys, {package}; print([name for name in {HEAVY} if name in sys.modules])"
    done = subprocess.run([sys.executable, "-c", seen], capture_output=True, text=True, check=True, cwd=ROOT)
    assert done.stdout.strip() == "[]"


def test_reading_bundles_loads_no_compiler() -> None:
    """With it, the process that mirrors models holds 100 MiB more, and commands start a second later."""
    seen = "import sys, modelserve.bundle.bundle; print('numba' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", seen], capture_output=True, text=True, check=True, cwd=ROOT)
    assert done.stdout.strip() == "False"


def words() -> Iterator[tuple[str, str]]:
    """Yield every text that a reader meets: docs, and the strings and comments of the code, with their place."""
    for path in sorted([ROOT / "README.md", *(ROOT / "docs").rglob("*.md")]):
        for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1):
            yield f"{path.relative_to(ROOT)}:{number}", line
    for module, path in modules().items():
        for number, line in enumerate(text(module).splitlines(), 1):
            yield f"{path.relative_to(ROOT)}:{number}", line


def test_no_banned_phrase_is_left() -> None:
    banned = re.compile(rf"\b({'|'.join(map(re.escape, BANNED))})\b", re.IGNORECASE)
    found = [f"{place}: {match[0]}" for place, line in words() if (match := banned.search(line))]
    assert not found, f"{len(found)} places, reword them: {found[:20]}"
