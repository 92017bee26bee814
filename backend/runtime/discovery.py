"""Finds what may be added as a single file: engines, kinds of sources and of sinks."""

from __future__ import annotations

import importlib
import pkgutil
import sys
from typing import Any


def find_names(package: str, kind: str) -> list[str]:
    """Return the names that modules of a package give to what they define, sorted.

    Args:
        package: full name of an imported package.
        kind: ``source``, say: then ``random_source`` is the module of ``random``.
    """
    modules = (module.name for module in pkgutil.iter_modules(sys.modules[package].__path__))
    return sorted(name.removesuffix(f"_{kind}") for name in modules if name.endswith(f"_{kind}"))


def import_kind(package: str, name: str, kind: str) -> Any:
    """Return the module of a package that defines what has a name."""
    return importlib.import_module(f"{package}.{name}_{kind}")


def find_kinds(package: str, kind: str) -> list[Any]:
    """Return what the modules of a package define, by the names of the modules.

    Args:
        package: full name of an imported package.
        kind: ``source``, say: then modules have names like ``random_source`` and define
            ``SOURCE``.
    """
    names = find_names(package, kind)
    return [getattr(import_kind(package, name, kind), kind.upper()) for name in names]
