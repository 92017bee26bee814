"""Finds what may be added as a single file: engines, kinds of sources and of sinks."""

from __future__ import annotations

import importlib
import pkgutil
import sys
from typing import Any


def find_names(package: str, kind: str) -> list[str]:
    """Find the names under which modules of an imported package define plug-ins, sorted.

    ``kind``: ``source``, say: then ``random_source`` is the module of ``random``.
    """
    modules = (module.name for module in pkgutil.iter_modules(sys.modules[package].__path__))
    return sorted(name.removesuffix(f"_{kind}") for name in modules if name.endswith(f"_{kind}"))


def import_kind(package: str, name: str, kind: str) -> Any:
    return importlib.import_module(f"{package}.{name}_{kind}")


def find_kinds(package: str, kind: str) -> list[Any]:
    """Import all plug-ins of a kind: of each ``*_source``, say, what it calls ``SOURCE``."""
    names = find_names(package, kind)
    return [getattr(import_kind(package, name, kind), kind.upper()) for name in names]
