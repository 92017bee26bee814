"""Each engine runs once before frame 0: first runs compile, tune and allocate."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..engines import Engine, MindsWarmUp
from ..sizes import OpenSlot
from .slots import LentRing, Ring, View


class WarmUp:
    """The runs before frame 0 of a rank's sub-models, on zeros."""

    def __init__(self) -> None:
        self.seconds = 0.0
        """Their total time."""
        self.left_out: list[str] = []
        """Segments without such a run, each with the reason."""

    def run(
        self,
        segment: int,
        engine: Engine,
        inputs: Sequence[Ring],
        outputs: Sequence[Ring],
        keeps: str = "",
    ) -> None:
        """Run a loaded engine on zeros, and into its first output slots, which are zero afterwards.

        It is not run if that would change frame 0, which ``keeps`` says. A failure is not an error:
        real inputs may never be zeros.
        """
        hindrance = keeps or (engine.warm_up_hindrance() if isinstance(engine, MindsWarmUp) else "")
        if not hindrance:
            begin = time.perf_counter()
            try:
                engine.run([_zeros(ring) for ring in inputs], [ring.slots[0] for ring in outputs])
            except Exception as error:  # engines' exceptions have no common base class
                hindrance = f"it fails on zeros: {' '.join(str(error).split())}"
            self.seconds += time.perf_counter() - begin
            for ring in outputs:
                ring.raw[0].fill(0)
        if hindrance:
            self.left_out.append(f"segment {segment}: {hindrance}")


def _zeros(ring: Ring) -> NDArray[Any]:
    """Return a slot of zeros, as large as it may be.

    The slots of another rank may have what its own first run leaves, and those that a source lends
    have frames. Zeros that are never written take no memory.
    """
    slot = ring.slots[0]
    if isinstance(ring, View | LentRing) or isinstance(slot, OpenSlot):
        dtype, shape = ring.tensor.storage
        return np.zeros(shape, dtype)  # not zeros_like(), which writes them
    return slot
