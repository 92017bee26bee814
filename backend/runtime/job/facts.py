"""What the front end tells boards about a sub-model, so that these need not look into it."""

from __future__ import annotations

from dataclasses import dataclass

RANDOM = "it draws random numbers"
VARIABLES = "it keeps variables"


@dataclass(frozen=True, slots=True)
class Facts:
    """What is known of a sub-model before it is loaded."""

    keeps: str = ""
    """Why a run may leave something for the next one, as :data:`VARIABLES`; empty: it does not."""
    divides: bool = False
    """Whether it may divide integers by zero where its inputs are zeros."""
    control_flow: str = ""
    """Of an ONNX sub-model, an operator of control flow that it has: ``Loop``."""
    operators: int = 0
    """How many it has, if its engine wants to know."""


NO_FACTS = Facts()
"""Of an ordinary sub-model."""
