"""LiteRT as this board has it: one of three packages with almost the same interpreter."""

from __future__ import annotations

import contextlib
import ctypes
import importlib
import importlib.metadata
import importlib.util
import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from ..errors import JobError

_PACKAGES = {
    "ai-edge-litert": "ai_edge_litert.interpreter",
    "tflite-runtime": "tflite_runtime.interpreter",
    "tensorflow": "tensorflow.lite.python.interpreter",
}
"""Distribution -> its module with the interpreter; the first that is installed is used."""


@dataclass(frozen=True, slots=True)
class LiteRtPackage:
    """The interpreter's module of one of the packages."""

    name: str
    """Package and version, for messages."""
    module: Any

    def load_delegate(self, library: str, options: dict[str, str]) -> Any:
        try:
            functions = ctypes.CDLL(library)
        except OSError as error:
            raise JobError(
                f"delegate {library} cannot be loaded: {error}; give its path, or set"
                " LD_LIBRARY_PATH in the accelerator's environment"
            ) from None
        if not hasattr(functions, "tflite_plugin_create_delegate"):
            raise JobError(f"{library} is not a delegate: it lacks tflite_plugin_create_delegate")
        try:
            return self.module.load_delegate(library, options or None)
        except ValueError as error:
            reason = " ".join(str(error).partition("\n")[2].split()) or "it gives no reason"
            raise JobError(
                f"delegate {library} refuses to start with options {options}: {reason}"
            ) from None

    def interpreter(
        self, path: Path, threads: int, delegates: Sequence[Any], *, only_delegates: bool = False
    ) -> Any:
        """Return an interpreter for a file, without memory for tensors yet.

        ``delegates`` must outlive it. ``only_delegates``: leave what they do not take to the plain
        kernels, so that nothing else shows up among the delegated operators.
        """
        resolvers = self.module.OpResolverType
        resolver = resolvers.BUILTIN_WITHOUT_DEFAULT_DELEGATES if only_delegates else resolvers.AUTO
        with warnings.catch_warnings():
            # tensorflow says that its interpreter has moved to ai-edge-litert.
            warnings.simplefilter("ignore")
            return self.module.Interpreter(
                model_path=str(path),
                experimental_delegates=list(delegates) or None,
                num_threads=threads,
                experimental_op_resolver_type=resolver,
            )


COMPILED_MODELS = "compiled_model.py"
"""The file that a package has if it compiles models for GPUs and NPUs."""


def file_of_package(name: str) -> Path | None:
    """Return a file of the board's ai-edge-litert, which is not loaded; ``None``: not there."""
    spec = importlib.util.find_spec("ai_edge_litert")
    folders = spec.submodule_search_locations if spec is not None else None
    paths = (Path(folder) / name for folder in folders or ())
    return next((path for path in paths if path.exists()), None)


def find_package() -> LiteRtPackage:
    """Return the package that this board has.

    Raises:
        ImportError: there is none, or it cannot be loaded.
    """
    for name, module in _PACKAGES.items():
        if importlib.util.find_spec(module.partition(".")[0]) is not None:
            if name == "tflite-runtime" and not np.__version__.startswith("1."):
                # It could be loaded, and would fail at its first use.
                raise ImportError(f"{name} needs numpy below 2, this is numpy {np.__version__}")
            try:
                with warnings.catch_warnings():
                    warnings.simplefilter("ignore")
                    loaded = importlib.import_module(module)
                return LiteRtPackage(f"{name} {_version(name)}".strip(), loaded)
            except Exception as error:  # compiled for another numpy: several kinds of errors
                raise ImportError(f"{name} {_version(name)}: {first_line(error)}") from None
    raise ImportError(f"none of {', '.join(_PACKAGES)} is installed")


def _version(name: str) -> str:
    with contextlib.suppress(importlib.metadata.PackageNotFoundError):
        return importlib.metadata.version(name)
    return ""


def first_line(error: BaseException) -> str:
    """Return the text of an exception, on one line without the libraries' source positions."""
    lines = [line.strip(" └\t") for line in str(error).splitlines()]
    wanted = [line for line in lines if line and not line.startswith("ERROR: [")]
    return "; ".join(wanted or lines) or type(error).__name__
