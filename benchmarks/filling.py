"""An engine that fills its outputs and computes nothing; of open sizes only a share is there.

``open_sizes.py`` puts it into build folders, in the place of the null engine.
"""

from __future__ import annotations

from typing import Any

from . import Engine


def open_engine(settings: Any) -> Engine:
    """Return the engine; option ``share``: of the bound of each open size."""
    return _Filling(float(settings.options["share"]))


class _Filling(Engine):
    def __init__(self, share: float) -> None:
        self._share = share
        self._frames = 0

    def load(self, path: Any, inputs: Any, outputs: Any) -> None:
        """Nothing is read."""

    def run(self, inputs: Any, outputs: Any) -> None:
        """Fill the outputs."""
        self._frames += 1
        for output in outputs:
            values = self._shaped(output) if hasattr(output, "shaped") else output
            values.fill(self._frames)

    def _shaped(self, slot: Any) -> Any:
        sizes = zip(slot.spec.shape, slot.spec.symbols, strict=True)
        return slot.shaped([round(size * self._share) if name else size for size, name in sizes])

    def warm_up_hindrance(self) -> str:
        """There is nothing to warm up."""
        return "it computes nothing"
