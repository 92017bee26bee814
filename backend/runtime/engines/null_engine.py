"""An engine that computes nothing: it sleeps, so schedules can be tested on any machine.

The first bytes of the first input are copied to every output, so frames keep their identity. Open
sizes of outputs follow from them, too: any from 0 to the bound.
"""

from __future__ import annotations

import math
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..job import Tensor
from ..sizes import OpenSlot, Slot
from . import Engine, EngineSettings, wrong_option

_LEADING_BYTES = 16


def open_engine(settings: EngineSettings) -> NullEngine:
    """Return the engine; its option ``sleep_ms`` is the time of a run in milliseconds."""
    text = settings.options.get("sleep_ms", "0")
    try:
        sleep_ms = float(text)
    except ValueError:
        sleep_ms = math.nan
    if not 0 <= sleep_ms < math.inf:
        raise wrong_option("null", "sleep_ms", text, "milliseconds")
    return NullEngine(sleep_ms / 1e3)


class NullEngine(Engine):
    def __init__(self, sleep_s: float) -> None:
        self._sleep_s = sleep_s

    def load(self, path: Path, inputs: Sequence[Tensor], outputs: Sequence[Tensor]) -> None:
        """Nothing is read: the sub-model's file need not exist."""

    def run(self, inputs: Sequence[NDArray[Any]], outputs: Sequence[Slot]) -> None:
        if self._sleep_s:
            time.sleep(self._sleep_s)
        if not inputs:
            return
        source = inputs[0].reshape(-1).view(np.uint8)
        for output in outputs:
            values = _sized(output, source) if isinstance(output, OpenSlot) else output
            target = values.reshape(-1).view(np.uint8)
            size = min(source.size, target.size)
            target[:size] = source[:size]

    def warm_up_hindrance(self) -> str:
        return "it computes nothing"


def _sized(slot: OpenSlot, source: NDArray[np.uint8]) -> NDArray[Any]:
    draw = np.random.default_rng(list(source[:_LEADING_BYTES]))
    symbols = slot.spec.symbols
    sizes = [
        int(draw.integers(0, largest, endpoint=True)) if symbol else largest
        for largest, symbol in zip(slot.spec.shape, symbols, strict=True)
    ]
    return slot.shaped(sizes)
