"""Finds what may be added as a single file: kinds of sources and of sinks."""

from __future__ import annotations

import importlib
import pkgutil
import sys
from typing import Any


def find_kinds(package: str, kind: str) -> list[Any]:
    """Return what the modules of a package define, by the names of the modules.

    Args:
        package: full name of an imported package.
        kind: ``source``, say: then modules have names like ``random_source`` and define
            ``SOURCE``.
    """
    names = [module.name for module in pkgutil.iter_modules(sys.modules[package].__path__)]
    return [
        getattr(importlib.import_module(f"{package}.{name}"), kind.upper())
        for name in sorted(names)
        if name.endswith(f"_{kind}")
    ]
