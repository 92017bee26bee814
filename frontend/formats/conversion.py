"""How sub-models of formats that are converted store their numbers."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

from numpy.typing import NDArray

KINDS = ("float32", "float16", "dynamic", "int8")
"""How weights and activations are stored: both in float32; weights in float16; weights in int8,
activations in float32; both in int8. Inputs and outputs are float32 always."""

Frames: TypeAlias = Callable[[], Iterator[Sequence[NDArray[Any]]]]
"""Gives frames, again and again: an array per model input."""


@dataclass(frozen=True, slots=True)
class Conversion:
    """How sub-models are converted."""

    kind: str = "float32"
    """One of :data:`KINDS`."""
    frames: Frames | None = None
    """For ``int8``: frames like those that will come. Each sub-model is calibrated for what the
    unsliced model in float32 makes of them at its inputs, so both ends of a channel agree."""


FLOAT32 = Conversion()
