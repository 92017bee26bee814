"""Running ``.tflite`` files with LiteRT, as it is installed here."""

from __future__ import annotations

import warnings
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

with warnings.catch_warnings():
    warnings.simplefilter("ignore")
    interpreter = pytest.importorskip(
        "ai_edge_litert.interpreter", reason="ai-edge-litert is not installed (extra: litert)"
    )

Array = NDArray[Any]


class Runner:
    """An interpreter on one thread, with or without XNNPACK."""

    def __init__(
        self,
        path: Path,
        *,
        xnnpack: bool = False,
        shapes: Sequence[tuple[int, ...]] = (),
        keep_all: bool = False,
    ) -> None:
        resolvers = interpreter.OpResolverType
        self._interpreter = interpreter.Interpreter(
            model_path=str(path),
            num_threads=1,
            experimental_preserve_all_tensors=keep_all,
            experimental_op_resolver_type=(
                resolvers.AUTO if xnnpack else resolvers.BUILTIN_WITHOUT_DEFAULT_DELEGATES
            ),
        )
        details = self._interpreter.get_input_details()
        for item, shape in zip(details, shapes, strict=False):
            self._interpreter.resize_tensor_input(item["index"], shape)
        self._interpreter.allocate_tensors()

    def run(self, arrays: Sequence[Array]) -> list[Array]:
        details = self._interpreter.get_input_details()
        for item, array in zip(details, arrays, strict=True):
            self._interpreter.set_tensor(item["index"], array)
        self._interpreter.invoke()
        given = self._interpreter.get_output_details()
        return [self._interpreter.get_tensor(item["index"]) for item in given]

    def shapes(self, numbers: Iterable[int]) -> dict[int, tuple[int, ...]]:
        """Return the shapes that tensors have in a run on zeros, by number, if all are kept."""
        self.run([np.zeros(i["shape"], i["dtype"]) for i in self._interpreter.get_input_details()])
        return {number: self.tensor(number).shape for number in numbers}

    def tensor(self, number: int) -> Array:
        """Return the values of any tensor, if all are kept."""
        return self._interpreter.get_tensor(number)

    def random_frame(self, random: np.random.Generator) -> list[Array]:
        return [
            _random(random, np.dtype(item["dtype"]), tuple(item["shape"]))
            for item in self._interpreter.get_input_details()
        ]


def _random(random: np.random.Generator, dtype: np.dtype[Any], shape: tuple[int, ...]) -> Array:
    if dtype.kind == "f":
        return random.standard_normal(shape).astype(dtype)
    limits = np.iinfo(dtype)
    return random.integers(max(limits.min, -128), min(limits.max, 127), shape).astype(dtype)
