"""Inference engines: one file each, found by name."""

from __future__ import annotations

import importlib
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

from numpy.typing import NDArray

from ..errors import JobError
from ..job import TensorSpec

__all__ = ["ENGINES", "Engine", "EngineSettings", "open_engine"]

ENGINES = {"onnxruntime": "onnxruntime_engine", "null": "null_engine"}
"""Name in the platform file -> module in this folder."""


@dataclass(frozen=True, slots=True)
class EngineSettings:
    """How an engine is to run a sub-model."""

    threads: int = 1
    exact: bool = False
    """Run without graph optimisation, so that slicing changes no bit."""
    options: dict[str, str] = field(default_factory=dict)
    """What the platform file says about the accelerator."""


class Engine(Protocol):
    """Runs one sub-model on memory that the runtime owns.

    ``run`` is called by one thread and releases the GIL while it computes.
    """

    def load(self, path: Path, inputs: Sequence[TensorSpec], outputs: Sequence[TensorSpec]) -> None:
        """Load the sub-model and check that it has these inputs and outputs.

        Raises:
            JobError: the file is no sub-model that this engine runs, or a tensor differs.
        """

    def run(self, inputs: Sequence[NDArray[Any]], outputs: Sequence[NDArray[Any]]) -> None:
        """Compute ``outputs`` from ``inputs``, in the order given to :meth:`load`.

        The arrays are slots: the same few arrays come again and again.
        """

    def close(self) -> None:
        """Release the sub-model."""


def open_engine(name: str, settings: EngineSettings) -> Engine:
    """Return the engine called ``name``, with nothing loaded yet.

    Raises:
        JobError: the name is unknown, or the engine's package is not installed here.
    """
    if name not in ENGINES:
        raise JobError(f"engine {name!r} is not one of {', '.join(sorted(ENGINES))}")
    try:
        module = importlib.import_module(f".{ENGINES[name]}", __package__)
        engine: Engine = module.open_engine(settings)
    except ImportError as error:
        raise JobError(f"engine {name!r} cannot be loaded on this board: {error}") from None
    return engine
