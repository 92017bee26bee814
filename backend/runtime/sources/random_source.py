"""Frames of random values."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from . import Source, write_frame

if TYPE_CHECKING:
    from numpy.random import Generator
    from numpy.typing import NDArray

    from ..job import Tensor
    from ..options import RunOptions
    from ..sizes import Slot
    from .arrivals import Arrivals

_FRAMES = 100
_POOL_BYTES, _MAX_POOL_FRAMES, _MIN_POOL_FRAMES = 32 << 20, 1024, 4
"""The pool of frames takes at most that memory. Where it would hold fewer, there is none."""


class RandomSource(Source):
    """Seeded values: frame f is the same for the same seed, wherever it is made.

    Floats have mean 0 and variance 1, integers and booleans are 0 or 1. Open sizes are drawn from
    1 to their bound, one for all inputs that name it.

    On the source's board, frames are drawn before frame 0, so that no other rank waits for that:
    they come from a pool over and over. Its size depends on the model's inputs alone. Where frames
    are too large for a pool, each is drawn as it is read.
    """

    usage = ("random",)
    reads_files = False
    can_replay = True

    @classmethod
    def accepts(cls, inputs: Sequence[str]) -> bool:
        return list(inputs) in ([], ["random"])

    def __init__(self, options: RunOptions, inputs: Sequence[Tensor]) -> None:
        usual = None if options.unlimited else _FRAMES
        self.frames = usual if options.frames is None else options.frames
        self._inputs = inputs
        self._seed = options.seed
        self._bounds = _bounds(inputs)
        fitting = _POOL_BYTES // max(1, sum(spec.nbytes for spec in inputs))
        self._distinct = min(fitting, _MAX_POOL_FRAMES) if fitting >= _MIN_POOL_FRAMES else None
        self._pool: list[list[NDArray[Any]]] = []

    def start(self, arrivals: Arrivals) -> None:
        from ..sizes import make_slot, private_memory, slot_bytes, values_in

        for index in range(min(self._distinct or 0, self.frames or _MAX_POOL_FRAMES)):
            memory = [private_memory(slot_bytes(spec)) for spec in self._inputs]
            slots = [make_slot(spec, raw) for spec, raw in zip(self._inputs, memory, strict=True)]
            self._draw(index, slots)
            self._pool.append([values_in(slot) for slot in slots])

    def read(self, index: int, slots: Sequence[Slot]) -> None:
        index %= self._distinct or index + 1
        if index < len(self._pool):
            write_frame(self._pool[index], slots)
        else:
            self._draw(index, slots)

    def _draw(self, index: int, slots: Sequence[Slot]) -> None:
        import numpy as np

        from ..sizes import OpenSlot

        generator = np.random.Generator(np.random.SFC64([self._seed, index]))
        sizes = {
            place: int(generator.integers(min(1, bound), bound, endpoint=True))
            for place, bound in self._bounds.items()
        }
        for number, (spec, slot) in enumerate(zip(self._inputs, slots, strict=True)):
            shape = [
                sizes.get(_place(spec, number, axis), bound)
                for axis, bound in enumerate(spec.shape)
            ]
            values = slot.shaped(shape) if isinstance(slot, OpenSlot) else slot
            _fill(values, spec.dtype, generator)

    def lent(self, limit: int) -> Sequence[Sequence[NDArray[Any]]]:
        is_open = any(spec.is_open for spec in self._inputs)
        return () if is_open or len(self._pool) > limit else [*zip(*self._pool, strict=True)]

    def label(self, index: int) -> str:
        return f"random {index}"


def _bounds(inputs: Sequence[Tensor]) -> dict[str, int]:
    bounds: dict[str, int] = {}
    for number, spec in enumerate(inputs):
        for axis, size in enumerate(spec.shape if spec.is_open else ()):
            if place := _place(spec, number, axis):
                bounds[place] = min(size, bounds.get(place, size))
    return bounds


def _place(spec: Tensor, number: int, axis: int) -> str:
    """Return the key of an open size: its name, or its place; empty: it is fixed."""
    symbol = spec.symbols[axis] if spec.symbols else ""
    return f"? {number} {axis}" if symbol == "?" else symbol


def _fill(values: NDArray[Any], dtype: str, generator: Generator) -> None:
    import numpy as np

    if dtype in ("float32", "float64"):
        generator.random(out=values, dtype=values.dtype)
        values -= 0.5
        values *= math.sqrt(12)
    elif values.dtype.kind == "f":
        values[...] = (generator.random(values.shape) - 0.5) * math.sqrt(12)
    elif dtype == "bfloat16":  # the upper half of a float32
        drawn = (generator.random(values.shape, np.float32) - 0.5) * math.sqrt(12)
        values[...] = drawn.astype(np.float32).view(np.uint32) >> 16
    else:
        values[...] = generator.integers(0, 2, values.shape)


SOURCE = RandomSource
