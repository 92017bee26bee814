"""Import modules from texts: this text is sent first, the others with it."""

from __future__ import annotations

import importlib.abc
import importlib.util
import sys
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from importlib.machinery import ModuleSpec
    from types import ModuleType


class Texts(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    """Finds and loads modules whose source texts are in a dictionary, by their full names."""

    def __init__(self, texts: dict[str, str]) -> None:
        self._texts = texts

    def find_spec(self, fullname: str, path: Any = None, target: Any = None) -> ModuleSpec | None:
        del path, target
        if fullname not in self._texts:
            return None
        is_package = any(name.startswith(fullname + ".") for name in self._texts)
        return importlib.util.spec_from_loader(fullname, self, is_package=is_package)

    def exec_module(self, module: ModuleType) -> None:
        name = module.__name__
        exec(compile(self._texts[name], f"<{name}>", "exec"), module.__dict__)


def take(texts: dict[str, str]) -> None:
    sys.meta_path.insert(0, Texts(texts))
