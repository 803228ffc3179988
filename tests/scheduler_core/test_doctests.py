"""The examples in the docstrings run as printed."""

import doctest
import importlib
import pkgutil

import scheduler_core


def test_examples_run_as_printed() -> None:
    modules = [module.name for module in pkgutil.walk_packages(scheduler_core.__path__, "scheduler_core.")]
    found = [doctest.testmod(importlib.import_module(name)) for name in modules]

    assert sum(each.failed for each in found) == 0
    assert sum(each.attempted for each in found) >= 40
