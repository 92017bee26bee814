"""Frames of random values."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from . import Source

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from ..job import TensorSpec
    from ..options import RunOptions

_FRAMES = 100


class RandomSource(Source):
    """Seeded values: frame f is the same for the same seed, wherever it is made.

    Floats have mean 0 and variance 1, integers and booleans are 0 or 1.
    """

    usage = ("random",)
    reads_files = False
    can_replay = True
    frames: int

    @classmethod
    def accepts(cls, inputs: Sequence[str]) -> bool:
        """Return whether the input is ``random``."""
        return list(inputs) in ([], ["random"])

    def __init__(self, options: RunOptions, inputs: Sequence[TensorSpec]) -> None:
        self.frames = _FRAMES if options.frames is None else options.frames
        self._inputs = inputs
        self._seed = options.seed

    def read(self, index: int, slots: Sequence[NDArray[Any]]) -> None:
        """Fill the slots with the values of frame ``index``."""
        import numpy as np

        generator = np.random.Generator(np.random.SFC64([self._seed, index]))
        for spec, slot in zip(self._inputs, slots, strict=True):
            if spec.dtype in ("float32", "float64"):
                generator.random(out=slot, dtype=slot.dtype)
                slot -= 0.5
                slot *= math.sqrt(12)
            elif slot.dtype.kind == "f":
                slot[...] = (generator.random(slot.shape) - 0.5) * math.sqrt(12)
            elif spec.dtype == "bfloat16":  # the upper half of a float32
                values = (generator.random(slot.shape, np.float32) - 0.5) * math.sqrt(12)
                slot[...] = values.astype(np.float32).view(np.uint32) >> 16
            else:
                slot[...] = generator.integers(0, 2, slot.shape)

    def label(self, index: int) -> str:
        """Return a name with the frame's number."""
        return f"random {index}"


SOURCE = RandomSource
