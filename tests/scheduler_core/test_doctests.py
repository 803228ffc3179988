"""The examples in the docstrings run as printed."""

import doctest
import importlib
import pkgutil

import pytest

import scheduler_core

MODULES = [f"scheduler_core.{module.name}" for module in pkgutil.iter_modules(scheduler_core.__path__)]


@pytest.mark.parametrize("name", MODULES)
def test_examples_run_as_printed(name: str) -> None:
    assert doctest.testmod(importlib.import_module(name)).failed == 0


def test_there_are_examples() -> None:
    assert sum(doctest.testmod(importlib.import_module(name)).attempted for name in MODULES) >= 8
